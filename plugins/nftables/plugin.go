// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
)

// mode is the plugin's name, and that under which it holds locks and settings.
const mode = "nftables"

// Description is what the plugin is, known without looking at the node.
var Description = sdk.Description{
	Name:     mode,
	Version:  "0.1.0",
	Features: sdk.Features,
	Options:  []byte(schema),
}

// New is the dataplane, which keeps its ledger in dir (ledger.Dir on a node).
func New(dir string) sdk.Dataplane {
	p := new(plugin)
	p.Dataplane = frame.New(frame.Mode[wanted]{Description: Description, Open: p.open, Sweep: p.sweep}, dir)
	return p
}

// A plugin is the frame around both families, and what this mode can do besides.
type plugin struct {
	*frame.Dataplane[wanted]
	notes notes

	mu       sync.Mutex // guards what follows, which is read beside a call
	families []*family

	counted counted
	traffic frame.Counts
}

// families are the two of IP.
var families = []sdk.Family{sdk.IPv4, sdk.IPv6}

// open begins a session: can the kernel do what the layout needs, and in which families?
func (p *plugin) open(ctx context.Context, setup sdk.Setup, env frame.Env) (frame.Session[wanted], error) {
	var session frame.Session[wanted]
	options, err := parseOptions(setup.Options)
	if err != nil {
		return session, err
	}
	var all []*family
	var reasons []string
	shared, kept := new(commits), &marks{env: env, notes: &p.notes}
	kept.look()
	for _, of := range families {
		if err := probe(ctx, nodeConfig{ip: ip{of}}); err != nil {
			env.Log.Info("the kernel cannot serve a family", "family", of, "err", err)
			reasons = append(reasons, err.Error())
			continue
		}
		if options.CountConnections {
			if err := probe(ctx, nodeConfig{ip: ip{of}, counts: true}); err != nil {
				return session, &sdk.Refusal{Field: "options.countConnections", Why: err.Error(), Try: "false"}
			}
		}
		f := newFamily(of, options, shared, kept, env)
		f.lookAround(ctx)
		all = append(all, f)
		session.Families = append(session.Families, f)
	}
	if len(all) == 0 {
		try := "another mode, or Linux 5.10 or later with nf_tables"
		return session, &sdk.Refusal{Why: strings.Join(slices.Compact(reasons), "\n"), Try: try} // both families may have one
	}
	for _, f := range all {
		f.succeed(p.families)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.families = all
	session.Settings = func(n sdk.Node) sysctl.Settings { return options.settings(n) }
	return session, nil
}

// probe asks the kernel whether it takes the layout, in a table that is never there: the last
// operation of the batch is bad, so that nothing of it is done.
func probe(ctx context.Context, n nodeConfig) error {
	conn, err := nftnl.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	n.parts = whole(n.ip, longestTimeout)
	none := &family{ip: n.ip, node: n, have: observed{}.without()}
	t := transaction{family: none, table: table + "-probe"}
	t.shape.sets = layoutSets(n.ip, n.parts)
	t.shape.compare(nil, layout(n, sdk.Active))
	if err := t.build(); err != nil {
		return err
	}
	last := t.batch.Len()
	t.batch.DeleteChain("none")
	err = conn.Send(ctx, t.batch)
	var faults nftnl.Faults
	if !errors.As(err, &faults) {
		return fmt.Errorf("ask the kernel for nf_tables: %w", err)
	}
	return lacks(faults, last)
}

// lacks says what the kernel has not, by the faults of a batch whose last operation is bad.
func lacks(faults nftnl.Faults, last int) error {
	for _, f := range faults {
		switch {
		case f.First == 0 && f.Errno == syscall.EOPNOTSUPP: // nfnetlink knows no such subsystem
			return errors.New("the kernel has no nf_tables")
		case f.First != last:
			return fmt.Errorf("the kernel lacks a part of nf_tables: %w", faults)
		}
	}
	return nil
}
