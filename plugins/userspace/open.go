// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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

// open begins a session. A way that is in use is kept, with its sockets.
func (p *plugin) open(ctx context.Context, setup sdk.Setup, env frame.Env) (frame.Session[*desired], error) {
	o, err := parseOptions(setup.Options)
	if err != nil {
		return frame.Session[*desired]{}, err
	}
	if err := p.adding.configure(o); err != nil {
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
	p.foresee(ctx)
	session := frame.Session[*desired]{Limits: p.way.limits(p.adding.enabled), Unlocked: p.way.backend == ""}
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
		p.way.families = append(p.way.families, newDirect(&p.process, f, p.adding))
	}
}

// openRedirected finds the programs of each family that this node has, and whether this
// process may use them. It changes nothing.
func (p *plugin) openRedirected(ctx context.Context, backend string, env frame.Env) (way, error) {
	if env.Ledger == nil {
		return way{}, errors.New("without a ledger no rules can be written")
	}
	tools, err := iptables.OpenAll(ctx, backend, env.Note)
	if err != nil {
		return way{}, err
	}
	w := way{backend: backend, portals: p.relay.NewRedirected()}
	commits := new(iptables.Commits)
	for _, tool := range tools {
		tool.Waiting, tool.Heard, tool.Commits = env.Waiting, env.Step, commits
		f := newRedirected(&p.process, tool, w.portals)
		f.rules.Masquerade = &masquerade.Hold{Ledger: env.Ledger, Holder: mode, Tool: tool}
		w.families = append(w.families, f)
	}
	return w, nil
}

// mayUse reports whether this process might write rules at all.
func mayUse() bool { return os.Geteuid() == 0 }

// options are what the host's file may say of this plugin.
type options struct {
	udpIdleTimeout time.Duration // after which a UDP flow without a datagram ends
	redirect       string        // whether rules lead callers here
	backend        string        // to which those are written
	addresses      string        // whether frontends' addresses are added to an interface
	iface          string        // to which; empty: the loopback interface
}

// What the options that are words may say.
const (
	redirectAuto   = "auto"
	redirectAlways = "always"
	redirectNever  = "never"

	backendAuto = "auto"

	addressesAuto  = "auto"
	addressesNever = "never"
)

var defaults = options{udpIdleTimeout: relay.DefaultUDPIdle, redirect: redirectAuto, backend: backendAuto, addresses: addressesNever}

// schema describes the options, for people that write the file.
const schema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "udpIdleTimeout": {"type": "string", "default": "250ms", "description": "how long a UDP flow is kept without a datagram in either direction, from 1ms to 1h"},
    "redirect": {"enum": ["auto", "always", "never"], "default": "auto", "x-pointsman-fixed": true, "description": "whether iptables rules lead callers of every address here, which needs root; auto: if it is possible; never: only addresses that the machine has are served"},
    "backend": {"enum": ["auto", "nft", "legacy"], "default": "auto", "x-pointsman-fixed": true, "description": "which of the kernel's two rule machines such rules are written to; auto: the one in use on the node"},
    "addresses": {"enum": ["auto", "never"], "default": "never", "x-pointsman-fixed": true, "description": "whether addresses of Services that no interface has are added to one, on Windows, as an administrator; never: such Services are not served there"},
    "interface": {"type": "string", "default": "", "description": "the name of the interface that such addresses are added to; empty: the loopback interface"}
  }
}`

const help = "pointsman plugin info userspace, for what it takes"

func parseOptions(data []byte) (options, error) {
	o := defaults
	if len(bytes.TrimSpace(data)) == 0 {
		return o, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return o, &sdk.Refusal{Field: "options", Why: "no JSON object: " + err.Error(), Try: help}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if err := o.parse(name, fields[name]); err != nil {
			return o, err
		}
	}
	return o, nil
}

func (o *options) parse(name string, data json.RawMessage) error {
	var err error
	try := help
	switch name {
	case "udpIdleTimeout":
		try = name + ": 250ms"
		err = parseTimeout(data, &o.udpIdleTimeout)
	case "redirect":
		err = parseWord(data, &o.redirect, redirectAuto, redirectAlways, redirectNever)
	case "backend":
		err = parseWord(data, &o.backend, backendAuto, "nft", "legacy")
	case "addresses":
		err = parseWord(data, &o.addresses, addressesAuto, addressesNever)
	case "interface":
		if json.Unmarshal(data, &o.iface) != nil {
			err, try = fmt.Errorf("%s is no name in quotes", data), name+`: "vEthernet (nat)"`
		}
	default:
		err, try = errors.New("there is no such option"), nearest(name)
	}
	if err != nil {
		return &sdk.Refusal{Field: "options." + name, Why: err.Error(), Try: try}
	}
	return nil
}

func nearest(name string) string {
	for _, known := range []string{"udpIdleTimeout", "redirect", "backend", "addresses", "interface"} {
		if strings.EqualFold(name, known) {
			return known + ", with this case"
		}
	}
	return help
}

func parseWord(data json.RawMessage, into *string, words ...string) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil || !slices.Contains(words, text) {
		return fmt.Errorf("%s is none of %s", data, strings.Join(words, ", "))
	}
	*into = text
	return nil
}

func parseTimeout(data json.RawMessage, into *time.Duration) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("%s is no duration in quotes", data)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is no duration", text)
	}
	if d < time.Millisecond || d > time.Hour {
		return fmt.Errorf("%s is not from 1ms to 1h", text)
	}
	*into = d
	return nil
}
