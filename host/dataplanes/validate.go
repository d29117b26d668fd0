// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/supervise"
)

// Validate asks the plugins of this machine what is wrong with what h says of them, all at once.
// The notes are what could not be asked, and what is odd.
func Validate(ctx context.Context, h *config.Host) (problems, notes config.Problems) {
	found := make(map[string]supervise.Found)
	for _, f := range Discover(h) {
		found[f.Name] = f
	}
	verdicts := make([]verdict, 0, len(h.Plugins)+1)
	for _, name := range asked(h) {
		verdicts = append(verdicts, verdict{host: h, name: name, found: found[name]})
	}
	var all sync.WaitGroup
	for i := range verdicts {
		all.Go(func() { verdicts[i].ask(ctx) })
	}
	all.Wait()
	for _, v := range verdicts {
		problems, notes = append(problems, v.problems...), append(notes, v.notes...)
	}
	return problems, notes
}

// asked returns the plugins that h speaks of.
func asked(h *config.Host) []string {
	names := config.InUse(h.Mode)
	for name := range h.Plugins {
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// A verdict is what one plugin says of a file.
type verdict struct {
	host  *config.Host
	name  string
	found supervise.Found // empty: there is none

	problems, notes config.Problems
}

func (v *verdict) ask(ctx context.Context) {
	field, settings := "plugins."+v.name, v.host.Plugins[v.name]
	if settings.Address != "" {
		v.note(field+".address", "it runs by itself, so that its options are not asked of it", "on its machine: "+supervise.Prefix+v.name+" check --options JSON")
		return
	}
	if v.found.Err != nil || v.found.Name == "" {
		v.missing(field)
		return
	}
	var check admin.Check
	var failed error
	var schema admin.Plugin
	var both sync.WaitGroup
	both.Go(func() { check, failed = Check(ctx, v.found, settings) })
	both.Go(func() { schema = Describe(ctx, v.found, settings.SHA256) })
	both.Wait()
	if v.problems = misfits(v.host, v.name, schema.Options); len(v.problems) > 0 {
		return // the plugin refuses the first of them, and says less of it
	}
	refused, about := optionRefused(v.host, v.name, check)
	switch {
	case errors.Is(failed, errNoAnswer):
		v.note(field, "it cannot be asked: "+oneLine(failed.Error()), "")
	case failed != nil:
		v.bad("cannot be asked: " + oneLine(failed.Error()))
	case about:
		v.problems = append(v.problems, refused)
	case !check.Runs:
		v.bad("this node cannot run it: " + oneLine(check.Why))
	}
}

// missing says that there is no plugin: a problem of the mode, or a section for nothing.
func (v *verdict) missing(field string) {
	if v.host.Mode == v.name {
		v.problems = append(v.problems, v.host.Problem("mode", missing(v.host, v.name), ""))
	} else if _, named := v.host.Plugins[v.name]; named {
		v.note(field, missing(v.host, v.name), "")
	}
}

// bad says why the plugin cannot serve, which is wrong only of the mode.
func (v *verdict) bad(why string) {
	if v.host.Mode != v.name {
		v.note("plugins."+v.name, why, "")
		return
	}
	v.problems = append(v.problems, v.host.Problem("mode", v.name+": "+why, ""))
}

func (v *verdict) note(field, why, try string) {
	v.notes = append(v.notes, v.host.Problem(field, why, try))
}

// optionRefused returns what is wrong with the options that h has for a plugin, and whether that is
// why it does not run.
func optionRefused(h *config.Host, name string, c admin.Check) (config.Problem, bool) {
	if c.Runs || c.Field != "options" && !strings.HasPrefix(c.Field, "options.") {
		return config.Problem{}, false
	}
	field := "plugins." + name + "." + c.Field
	why := strings.TrimPrefix(oneLine(c.Why), c.Field+": ")
	return h.Problem(field, why, ""), true
}

// Refuses says why a changed file cannot be taken: it has another mode, without a plugin, or the plugin that
// serves has something against the options that the file has for it, where they are others than it runs
// with.
func (set *Set) Refuses(wanted *config.Host) error {
	if err := set.modeRefused(wanted); err != nil {
		return err
	}
	main := set.serving()
	if main == nil || !main.differs(wanted) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), optionsLimit)
	defer cancel()
	if fixed := fixedChanged(wanted, main.name, main.description().Options, main.currentOptions()); len(fixed) > 0 {
		return fixed
	}
	return set.optionsRefused(ctx, wanted, main.name)
}

// modeRefused says that another mode than the one in force has no plugin here. A binary that is there and
// cannot be run is no reason: that can be mended meanwhile.
func (in installed) modeRefused(wanted *config.Host) error {
	mode := wanted.Mode
	if mode == in.Now().Mode || mode == config.Auto || wanted.Plugins[mode].Address != "" || in.there(mode) {
		return nil
	}
	return config.Problems{wanted.Problem("mode", missing(in.Begun, mode), "")}
}

// optionsLimit is how long a plugin may take to say what is wrong with its options, before a host
// starts without that.
const optionsLimit = 5 * time.Second

// optionsRefused asks a mode's plugin for what is wrong with its options. That it cannot run here is
// not asked: that is found when it is started, and can be mended meanwhile.
func (in installed) optionsRefused(ctx context.Context, h *config.Host, mode string) error {
	s := h.Plugins[mode]
	if len(s.Options) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, optionsLimit)
	defer cancel()
	c, err := in.check(ctx, h, mode)
	if err != nil {
		return nil // one that cannot be asked by hand is asked when it is started
	}
	if refused, about := optionRefused(h, mode, c); about {
		return config.Problems{refused}
	}
	return nil
}
