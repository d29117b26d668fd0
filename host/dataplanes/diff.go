// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/health"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// diffLimit is how long a comparison may take. Large tables take a busy node seconds to read.
const diffLimit = 25 * time.Second

// Diff says what the dataplane of a mode would write if it wrote now all that it is to serve;
// empty: of the mode that serves. Another process of its binary reads the kernel for that, and
// writes nothing. Of several calls one is answered at a time.
func (set *Set) Diff(ctx context.Context, mode string) (admin.Diff, error) {
	ctx, cancel := context.WithTimeout(ctx, diffLimit)
	defer cancel()
	select {
	case set.comparing <- struct{}{}:
		defer func() { <-set.comparing }()
	case <-ctx.Done():
		return admin.Diff{}, fmt.Errorf("wait for another diff to end: %w", ctx.Err())
	}
	main := set.serving()
	if mode == "" || mode == main.name {
		return set.drift(ctx, main)
	}
	if err := set.possible(mode); err != nil {
		return admin.Diff{}, notComparable(mode, err)
	}
	d := set.newDiff(mode)
	p := set.Now().Plugins[mode]
	if p.Address != "" {
		return d, &admin.Error{Code: http.StatusConflict, What: "diff of " + mode, Why: "it runs by itself at " + p.Address + ", and is not asked before it is connected to", Try: "pointsman mode swap " + mode}
	}
	found := set.found(mode)
	described := Describe(ctx, found, p.SHA256)
	if described.Why != "" {
		return d, errors.New(described.Why)
	}
	return d, set.plan(ctx, &d, binary{found.Path, p.SHA256, p.Options}, features(described.Features))
}

// notComparable says of an error about a swap that it is about a diff.
func notComparable(mode string, err error) error {
	var e *admin.Error
	if errors.As(err, &e) {
		e.What = "diff of " + mode
	}
	return err
}

func features(names []string) (all []sdk.Feature) {
	for _, n := range names {
		all = append(all, sdk.Feature(n))
	}
	return all
}

func (set *Set) newDiff(mode string) admin.Diff {
	d := admin.Diff{Mode: mode, Serves: mode == set.Mode(), Changes: []admin.Change{}, Unserved: []admin.Problem{}}
	if s := set.UnderWay(); s != nil {
		d.Notes = append(d.Notes, fmt.Sprintf("a swap from %s to %s goes on: %s", s.From, s.To, s.Stage))
	}
	if n := set.Followed().Pending; d.Serves && n > 0 {
		d.Notes = append(d.Notes, "not confirmed yet by the dataplane, and perhaps among the changes: "+phrase.Count(n, "port"))
	}
	return d
}

// drift compares what the dataplane that serves is to serve with what the kernel has. Where it
// serves by its process, or none of its binary can be run beside it, it is asked itself what it
// serves.
func (set *Set) drift(ctx context.Context, main *dataplane) (admin.Diff, error) {
	d := set.newDiff(main.name)
	status, plugin := main.status(), main.process.plugin
	if plugin.Address != "" || diesWithProcess(status.Description) {
		d.Notes = append(d.Notes, "only where Services are reached and where they lead is compared, as "+main.name+" itself reads that: another process cannot see all that it has")
		return d, set.readDrift(ctx, &d, main)
	}
	return d, set.plan(ctx, &d, binary{plugin.Path, plugin.SHA256, plugin.Options}, status.Description.Features)
}

// A binary is how a plugin's binary is run, and with which options.
type binary struct {
	path, sum string
	options   []byte
}

// plan has a process of a binary compare the kernel with everything that is to be served.
func (set *Set) plan(ctx context.Context, d *admin.Diff, b binary, has []sdk.Feature) error {
	u, known := set.Tracker.Whole(has)
	if !known {
		return errNotSynced(d.Mode)
	}
	words := []string{"plan", "-o", "json"}
	if len(b.options) > 0 {
		words = append(words, "--options", string(b.options))
	}
	in, out := io.Pipe()
	go func() { // ends with the process, which closes in
		_, err := wire.WriteUpdate(out, u)
		_ = out.CloseWithError(err)
	}()
	planned, err := answer[struct {
		Lines  []string
		More   int
		Failed []struct{ Service, Why string }
		Error  string
	}](verbOn(ctx, in, b.path, b.sum, words...))
	_ = in.Close()
	if planned.Error != "" {
		err = errors.New(planned.Error)
	}
	if err != nil {
		return fmt.Errorf("ask %s what it would write: %w", d.Mode, err)
	}
	d.Changes, d.More = changesOf(planned.Lines), planned.More
	for _, f := range planned.Failed {
		d.Unserved = append(d.Unserved, admin.Problem{Service: f.Service, Reason: health.Failed, Why: f.Why})
	}
	return nil
}

func errNotSynced(mode string) error {
	return &admin.Error{Code: http.StatusServiceUnavailable, What: "diff of " + mode, Why: "it is not known yet what is to be served: the Services were not read to their end", Try: "pointsman status"}
}

// changesOf takes lines for changes: those that begin with a space belong to the one before.
func changesOf(lines []string) []admin.Change {
	all := []admin.Change{}
	for _, line := range lines {
		if detail := strings.TrimLeft(line, " "); detail != line && len(all) > 0 {
			last := &all[len(all)-1]
			last.Details = append(last.Details, detail)
			continue
		}
		all = append(all, admin.Change{Step: line})
	}
	return all
}

// mostRead is how many changes of a dataplane that was asked itself are listed.
const mostRead = 10_000

// readDrift compares what is to be served with what the dataplane reads where it serves.
func (set *Set) readDrift(ctx context.Context, d *admin.Diff, p *dataplane) error {
	u, known := set.Tracker.Whole(p.status().Description.Features)
	if !known {
		return errNotSynced(d.Mode)
	}
	remote := p.remote()
	if remote == nil {
		return fmt.Errorf("ask %s what it serves: %w", p.name, errNoProcess)
	}
	found := make(map[sdk.Name][]sdk.Served)
	err := remote.Inspect(ctx, func(s sdk.Served) error { found[s.Name] = append(found[s.Name], s); return nil })
	if errors.Is(err, wire.ErrUnsupported) {
		return fmt.Errorf("%s cannot read back what it serves", p.name)
	}
	if err != nil {
		return fmt.Errorf("ask %s what it serves: %w", p.name, err)
	}
	for _, svc := range u.Set {
		if err := p.standing(svc.Name).Err; err != nil {
			d.Unserved = append(d.Unserved, admin.Problem{Service: svc.Name.String(), Reason: health.Failed, Why: err.Error()})
		} else {
			addDrift(d, svc, found[svc.Name])
		}
		delete(found, svc.Name)
	}
	for name, served := range found {
		addDrift(d, sdk.Service{Name: name}, served)
	}
	slices.SortFunc(d.Changes, func(a, b admin.Change) int { return strings.Compare(a.Step, b.Step) })
	return nil
}

// addDrift adds the frontends of a Service that are served otherwise than they should be.
func addDrift(d *admin.Diff, s sdk.Service, served []sdk.Served) {
	for _, row := range compare(s, served) {
		switch {
		case row.Differs == "":
		case len(d.Changes) == mostRead:
			d.More++
		default:
			d.Changes = append(d.Changes, admin.Change{
				Step:    fmt.Sprintf("%s of %s", row.Frontend, s.Name),
				Details: []string{row.Differs, "served now: " + phrase.Some(row.Endpoints)},
			})
		}
	}
}
