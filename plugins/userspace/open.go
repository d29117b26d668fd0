// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
)

// open begins a session. If the options do not change the way, its sockets stay.
func (p *plugin) open(ctx context.Context, setup sdk.Setup, env frame.Env) (frame.Session[*desired], error) {
	o, err := parseOptions(setup.Options)
	if err != nil {
		return frame.Session[*desired]{}, err
	}
	if err := p.vips.configure(o); err != nil {
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
	p.relay.SetUDPIdle(o.udpIdle)
	p.findSwapImpact(ctx)
	session := frame.Session[*desired]{Unlocked: p.way.backend == ""}
	if session.Unlocked {
		session.Limits = append(slices.Clone(Description.Limits), sdk.LimitNoDrop)
		if !p.vips.enabled {
			session.Limits = append(session.Limits, sdk.LimitOwnAddressesOnly)
		}
	} else {
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

// chooseWay sets the way that the options and the node allow.
func (p *plugin) chooseWay(ctx context.Context, o options, env frame.Env) error {
	if o.Redirect == "never" || o.Redirect == "auto" && !mayWrite() {
		p.log.Info("other software finds no chain " + masquerade.Mark + ": this process writes no rules")
		p.goDirect()
		return nil
	}
	if p.way.backend == o.Backend {
		return nil
	}
	found, err := p.openRedirected(ctx, o.Backend, env)
	switch {
	case err == nil:
		p.way.close()
		p.way = found
	case o.Redirect == "auto" && ctx.Err() == nil:
		p.log.Info("listening on the frontends' own addresses only, and other software finds no chain "+masquerade.Mark, "why", err)
		p.goDirect()
	default:
		return err
	}
	return nil
}

// goDirect sets the way without rules.
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

// openRedirected returns the way with rules, if this node has the programs and this process may use them. It changes
// nothing.
func (p *plugin) openRedirected(ctx context.Context, backend string, env frame.Env) (way, error) {
	if env.Ledger == nil {
		return way{}, errors.New("rules cannot be written without a ledger")
	}
	tools, err := iptables.OpenAll(ctx, backend, env.Note)
	if err != nil {
		return way{}, err
	}
	w := way{backend: backend}
	commits := new(iptables.Commits)
	for _, tool := range tools {
		tool.Waiting, tool.Heard, tool.Commits = env.Waiting, env.Step, commits
		f := newRedirected(&p.process, tool)
		f.rules.Masquerade = &masquerade.Hold{Ledger: env.Ledger, Holder: mode, Tool: tool}
		w.families = append(w.families, f)
	}
	return w, nil
}

// mayWrite reports whether this process may write rules.
func mayWrite() bool { return os.Geteuid() == 0 }

// options are the plugin's options in the host's config file. schema describes them.
type options struct {
	UDPIdleTimeout string `json:"udpIdleTimeout"`
	Redirect       string `json:"redirect"`
	Backend        string `json:"backend"`
	Addresses      string `json:"addresses"`
	Interface      string `json:"interface"`

	udpIdle time.Duration
}

// schema is the JSON schema of options.
const schema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "udpIdleTimeout": {"type": "string", "default": "250ms", "description": "how long a UDP flow is kept without a datagram in either direction, from 1ms to 1h"},
    "redirect": {"enum": ["auto", "always", "never"], "default": "auto", "x-pointsman-fixed": true, "description": "whether iptables rules redirect packets for Services at any address to the plugin, which needs root; auto: if possible; never: only addresses that the machine has are served"},
    "backend": {"enum": ["auto", "nft", "legacy"], "default": "auto", "x-pointsman-fixed": true, "description": "iptables backend to write these rules to; auto: the one in use on the node"},
    "addresses": {"enum": ["auto", "never"], "default": "never", "x-pointsman-fixed": true, "description": "whether addresses of Services that no interface has are added to one, on Windows, as an administrator; never: such Services are not served there"},
    "interface": {"type": "string", "default": "", "description": "the name of the interface that such addresses are added to; empty: the loopback interface"}
  }
}`

func parseOptions(data []byte) (options, error) {
	o := options{UDPIdleTimeout: relay.DefaultUDPIdle.String(), Redirect: "auto", Backend: "auto", Addresses: "never"}
	if err := frame.ParseOptions(mode, data, &o); err != nil {
		return o, err
	}
	var err error
	if o.udpIdle, err = time.ParseDuration(o.UDPIdleTimeout); err != nil || o.udpIdle < time.Millisecond || o.udpIdle > time.Hour {
		return o, &sdk.Refusal{Field: "options.udpIdleTimeout", Why: fmt.Sprintf("%q is not a duration from 1ms to 1h", o.UDPIdleTimeout), Try: "udpIdleTimeout: 250ms"}
	}
	for name, option := range map[string]struct{ is, words string }{"redirect": {o.Redirect, "auto, always, never"}, "addresses": {o.Addresses, "auto, never"}} {
		if !slices.Contains(strings.Split(option.words, ", "), option.is) {
			return o, &sdk.Refusal{Field: "options." + name, Why: fmt.Sprintf("%q is not one of %s", option.is, option.words)}
		}
	}
	return o, iptables.CheckBackend(&o.Backend)
}
