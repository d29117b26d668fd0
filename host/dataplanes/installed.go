// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/plane"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// Discover looks for plugins where the settings say, and beside this binary.
func Discover(h *config.Host) []supervise.Found {
	named := make(map[string]string)
	for name, p := range h.Plugins {
		named[name] = p.Path
	}
	dirs := h.PluginDirs
	if self, err := os.Executable(); err == nil {
		dirs = append(dirs[:len(dirs):len(dirs)], filepath.Dir(self))
	}
	return supervise.Discover(dirs, named)
}

// installed is the plugins of this machine, by a host's settings.
type installed struct{ Settings }

// available reports whether a mode has a plugin: a binary, or an address.
func (in installed) available(mode string) bool {
	if in.Now().Plugins[mode].Address != "" {
		return true // whether something listens there shows when it is connected to
	}
	return slices.ContainsFunc(Discover(in.Begun), func(f supervise.Found) bool { return f.Name == mode && f.Err == nil })
}

// there reports whether a mode has a plugin, whether it can be run or not: what is there can be
// mended while the host waits for it.
func (in installed) there(mode string) bool {
	return in.available(mode) || slices.ContainsFunc(Discover(in.Begun), func(f supervise.Found) bool {
		return f.Name == mode && !errors.Is(f.Err, fs.ErrNotExist)
	})
}

// found returns the binary of a mode. One that runs by itself may have none here.
func (in installed) found(mode string) supervise.Found {
	for _, f := range Discover(in.Now()) {
		if f.Name == mode {
			return f
		}
	}
	return supervise.Found{Name: mode, Err: fmt.Errorf("%s runs by itself, and its binary is not here", mode)}
}

// check asks a mode's plugin whether this node can run it, with the options that h has for it.
func (in installed) check(ctx context.Context, h *config.Host, mode string) (admin.Check, error) {
	s := h.Plugins[mode]
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	if s.Address == "" {
		return check(ctx, in.found(mode).Path, s.SHA256, s.Options)
	}
	remote, err := in.attach(ctx, s.Address)
	if err != nil {
		return admin.Check{}, err
	}
	defer remote.Close()
	return answer[admin.Check](remote.Preflight(ctx, s.Options))
}

// attach connects to the plugin at an address. Where the folder of its socket is there, whatever runs it may just be
// starting it. In a pod the plugin makes the folder, and the pod has a container for each address.
func (in installed) attach(ctx context.Context, address string) (*wire.Remote, error) {
	inPod := os.Getenv("KUBERNETES_SERVICE_HOST") != "" // as in every pod
	target, err := wire.At(address)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(startLimit); ; {
		remote, err := wire.Attach(ctx, target)
		_, away := os.Stat(filepath.Dir(target.Address))
		if err == nil || target.Network != "unix" || away != nil && !inPod || time.Now().After(end) {
			return remote, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-time.After(busyOften):
		}
	}
}

// startLimit is how long a plugin at an address may take to listen there, and then to read the role that it shows,
// before what depends on its answer goes on without.
const startLimit = 10 * time.Second

// observed returns the facts of a node of which no host before has noted what serves: the mode whose plugin shows that
// it is Active, and those that show another role, because a host before was replaced while they drained. From the former
// the host swaps to the wanted one as soon as it serves, so that no connection is lost. Only plugins at an address are
// asked: they are there before the host is.
func (in installed) observed(ctx context.Context, facts plane.Facts, wanted string) plane.Facts {
	if in.Now().Plugins[wanted].Address == "" {
		return facts
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	var mu sync.Mutex // guards found
	found := make(map[string]sdk.Role)
	var all sync.WaitGroup
	for mode, plugin := range in.Now().Plugins {
		if plugin.Address == "" {
			continue
		}
		all.Go(func() {
			role, err := in.shown(ctx, mode)
			if err != nil {
				in.Log.Info("plugin not asked for its role", "plugin", mode, "err", err)
			}
			mu.Lock()
			defer mu.Unlock()
			found[mode] = role
		})
	}
	all.Wait()
	seen := plane.Observed(wanted, found)
	facts.Served, facts.Left = seen.Served, seen.Left
	return facts
}

// shown returns the role that a plugin at an address shows; zero: it cannot tell. The plugin reads it once a session
// has begun.
func (in installed) shown(ctx context.Context, mode string) (sdk.Role, error) {
	plugin := in.Now().Plugins[mode]
	remote, err := in.attach(ctx, plugin.Address)
	if err != nil {
		return 0, err
	}
	defer remote.Close()
	if _, err := remote.Configure(ctx, sdk.Setup{Options: plugin.Options, StateDir: StateDir(in.Begun, mode)}); err != nil {
		return 0, err
	}
	for end := time.Now().Add(startLimit); ; {
		v, err := remote.Vitals(ctx)
		if err != nil || v.Shown != 0 || time.Now().After(end) {
			return cmp.Or(v.Shown, v.Role), err // the latter of a process that served the host before
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(busyOften):
		}
	}
}

// missing says why there is no binary for the mode that can be run, and what there is.
func missing(h *config.Host, mode string) string {
	text := fmt.Sprintf("there is no %s%s in %s", supervise.Prefix, mode, phrase.List(h.PluginDirs))
	var others []string
	for _, f := range Discover(h) {
		switch {
		case f.Name == mode && f.Err != nil:
			text = f.Err.Error()
		case f.Err == nil:
			others = append(others, f.Name)
		}
	}
	if len(others) == 0 {
		return text
	}
	return text + "; found for other modes: " + phrase.List(others)
}

// unused returns a plugin that no host runs.
func unused(f supervise.Found) admin.Plugin {
	p := admin.Plugin{Name: f.Name, Path: f.Path, State: "unused"}
	if f.Err != nil {
		p.Why = f.Err.Error()
	}
	return p
}

// plugin returns a mode's plugin. Where no binary of it is there, it is one that does
// not come up: the host waits for it, and says so.
func (in installed) plugin(mode string) supervise.Plugin {
	s := in.Now()
	if !supervise.ValidName(mode) {
		return supervise.Plugin{Name: mode} // which refuses to be launched
	}
	level := in.Begun.Logging.Level
	if level == "trace" {
		level = "debug" // plugins know no other
	}
	p := supervise.Plugin{
		Name:      mode,
		Path:      filepath.Join(in.Begun.PluginDirs[0], supervise.Prefix+mode),
		SHA256:    s.Plugins[mode].SHA256,
		Address:   s.Plugins[mode].Address,
		Debug:     s.Plugins[mode].Debug,
		StateDir:  StateDir(in.Begun, mode),
		SocketDir: socketDir(in.Begun.StateDir),
		Env:       []string{wire.LevelEnv + "=" + level},
	}
	if adj := in.Begun.OOMScoreAdj; adj != 0 && in.spareMe(adj) {
		p.OOMScoreAdj = &adj
	}
	if p.Address != "" {
		return p
	}
	for _, f := range Discover(s) {
		if f.Name == mode {
			p.Path = f.Path
			return p
		}
	}
	in.Reports.Report(report.Event{Warning: true, Reason: report.PluginDown, Object: mode, Message: missing(s, mode)})
	return p
}

// spareMe asks the kernel to spare the host when memory runs out, and reports
// whether it may ask that.
func (in installed) spareMe(adj int) bool {
	err := os.WriteFile("/proc/self/oom_score_adj", fmt.Append(nil, adj), 0)
	if err != nil {
		in.Log.Info("oomScoreAdj is left as it is", "err", err)
	}
	return err == nil
}

// StateDir returns where a plugin keeps what outlives the host.
func StateDir(h *config.Host, name string) string {
	return filepath.Join(h.StateDir, "plugins", name)
}

// socketDir returns below stateDir, unless that is so long that a socket's path would not
// fit: the kernel takes 107 bytes.
func socketDir(stateDir string) string {
	if len(stateDir) > 50 {
		return ""
	}
	return filepath.Join(stateDir, "sockets")
}

// A survey looks for rules in the kernel that go on serving while the mode in use does not:
// no dataplane in session keeps them up to date.
type survey struct {
	plugins installed
	running *group

	mu    sync.Mutex // guards what follows
	rules []string
	next  time.Time // when to look again
}

const surveyEach = time.Minute

// look asks each plugin's binary what it would clean up, if that is due. While the mode in
// use serves there is nothing to look for.
func (s *survey) look(ctx context.Context, now time.Time) {
	main := s.running.serving()
	if main.serves() {
		s.note(nil, time.Time{})
	} else if s.due(now) && !main.shownStatus().isComing() {
		s.note(s.plugins.leftServing(ctx), now.Add(surveyEach))
	}
}

func (s *survey) due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !now.Before(s.next)
}

func (s *survey) note(found []string, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules, s.next = found, next
}

// leftServing names what each mode's plugin would clean up.
func (in installed) leftServing(ctx context.Context) []string {
	var all []string
	for _, f := range Discover(in.Now()) {
		if f.Err != nil {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, askLimit)
		left, err := wouldRemove(limited, f.Path, in.Now().Plugins[f.Name].SHA256, "--kube-proxy")
		cancel()
		if left = slices.DeleteFunc(left, isKept); err == nil && len(left) > 0 {
			all = append(all, fmt.Sprintf("%s: %s%s", f.Name, left[0], phrase.AndMore(len(left)-1)))
		}
	}
	return all
}

// Unattended names, by mode, what the kernel has and goes on serving by while the mode in
// use does not serve: nothing updates it.
func (s *survey) Unattended() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.rules)
}
