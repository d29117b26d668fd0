// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
)

// open begins a session. A way that is in use is kept, with its sockets.
func (p *plugin) open(ctx context.Context, setup sdk.Setup, env frame.Env) (frame.Session[*desired], error) {
	o, err := parseOptions(setup.Options)
	if err != nil {
		return frame.Session[*desired]{}, err
	}
	own, err := p.addresses()
	if err != nil {
		return frame.Session[*desired]{}, err
	}
	p.log, p.step = env.Log, env.Step
	p.relay.SetLog(env.Log)
	if err := p.chooseWay(ctx, o, env); err != nil {
		return frame.Session[*desired]{}, err
	}
	p.relay.SetUDPIdle(o.udpIdleTimeout)
	session := frame.Session[*desired]{Limits: p.way.limits(), Unlocked: p.way.backend == ""}
	if p.way.backend != "" {
		session.Settings = func(n sdk.Node) sysctl.Settings { return sysctl.Conntrack(sysctl.Folder, n.Conntrack) }
	}
	for _, f := range p.way.families {
		has := func(a address) bool { return f.Serves(sdk.FamilyOf(a.prefix.Addr())) }
		if slices.ContainsFunc(own, has) {
			session.Families = append(session.Families, f)
		}
	}
	return session, nil
}

// chooseWay finds out which way it is to be.
func (p *plugin) chooseWay(ctx context.Context, o options, env frame.Env) error {
	if o.redirect == redirectNever || o.redirect == redirectAuto && !mayUse() {
		p.log.Info("other software finds no chain " + masquerade.Mark + ": this process writes no rules")
		p.goDirect()
		return nil
	}
	if p.way.backend == o.backend {
		return nil
	}
	found, err := p.openRedirected(ctx, o.backend, env)
	switch {
	case err == nil:
		p.way.close()
		p.way = found
	case o.redirect == redirectAuto && ctx.Err() == nil:
		p.log.Info("listening on the frontends' own addresses only, and other software finds no chain "+masquerade.Mark, "why", err)
		p.goDirect()
	default:
		return err
	}
	return nil
}

// goDirect has the relay listen on the frontends' own addresses.
func (p *plugin) goDirect() {
	if p.way.backend == "" && p.way.families != nil {
		return
	}
	p.way.close()
	p.relay.SetMark(0)
	p.way = way{}
	for _, f := range families {
		p.way.families = append(p.way.families, newDirect(&p.process, f))
	}
}

// openRedirected finds the programs of each family that this node has, and whether this
// process may use them. It changes nothing.
func (p *plugin) openRedirected(ctx context.Context, backend string, env frame.Env) (way, error) {
	if env.Ledger == nil {
		return way{}, errors.New("without a ledger no rules can be written")
	}
	tools, err := iptables.OpenAll(ctx, backend, env.Log)
	if err != nil {
		return way{}, err
	}
	w := way{backend: backend, portals: p.relay.NewRedirected()}
	losses := &ruleset.Losses{Log: env.Log, Ours: isOurs}
	for _, tool := range tools {
		tool.Waiting, tool.Heard, tool.Started, tool.Ended = env.Waiting, env.Step, losses.Started, losses.Ended
		f := newRedirected(&p.process, tool, w.portals, losses)
		f.rules.Masquerade = &masquerade.Hold{Ledger: env.Ledger, Holder: mode, Place: masquerade.At(tool)}
		w.families = append(w.families, f)
	}
	return w, nil
}

// mayUse reports whether this process might write rules at all.
func mayUse() bool { return os.Geteuid() == 0 }
