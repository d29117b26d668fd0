// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// families are the two of IP.
var families = []sdk.Family{sdk.IPv4, sdk.IPv6}

// mode is the plugin's name, and that under which it holds locks and settings.
const mode = "ipvs"

// Description is what the plugin is, known without looking at the node.
var Description = sdk.Description{
	Name:     mode,
	Version:  "0.1.0",
	Features: sdk.Features,
	Limits:   []sdk.Limit{sdk.LimitAffinityPerFrontend, sdk.LimitNodePortsAtAddresses, sdk.LimitTakesAddresses},
	Options:  []byte(schema),
}

// New is the dataplane, which keeps its ledger in dir (ledger.Dir on a node).
func New(dir string) sdk.Dataplane { return newPlugin(dir, thisMachine()) }

func newPlugin(dir string, m machine) *plugin {
	p := &plugin{machine: m, dir: dir, session: new(session), parked: &parked{pieces: make(map[sdk.Name]*piece)}}
	p.Dataplane = frame.New(frame.Mode[*piece]{Description: Description, Open: p.open, Sweep: p.sweepAll, Elsewhere: swept(false).Elsewhere}, dir)
	return p
}

// A plugin is the frame around both families, and what this mode can do besides.
type plugin struct {
	*frame.Dataplane[*piece]
	machine machine
	dir     string
	parked  *parked

	swapImpact atomic.Pointer[string] // what a change of mode would end; nil: nothing

	// What follows is used only where the frame calls, one goroutine at a time.
	options options
	kernel  kernel
	session *session
}

// open begins a session: is there an IPVS, are there the programs, and which of the two
// backends does the node use?
func (p *plugin) open(ctx context.Context, setup sdk.Setup, env frame.Env) (opened frame.Session[*piece], err error) {
	options, err := parseOptions(setup.Options)
	if err != nil {
		return opened, err
	}
	if err := p.reachKernel(ctx, options); err != nil {
		return opened, err
	}
	tools, err := p.machine.rules(ctx, options.Backend, env.Note)
	if err != nil {
		return opened, err
	}
	s := &session{
		plugin: p, kernel: p.kernel, options: options, env: env,
		wake: make(chan struct{}, 1),
	}
	commits := new(iptables.Commits)
	for _, tool := range tools {
		tool.Waiting, tool.Heard, tool.Commits = env.Waiting, env.Step, commits
		f := newFamily(tool, s)
		f.rules.Masquerade = &masquerade.Hold{Ledger: env.Ledger, Holder: mode, Tool: tool}
		s.families = append(s.families, f)
		opened.Families = append(opened.Families, f)
	}
	p.options, p.session = options, s
	opened.Settings = func(n sdk.Node) sysctl.Settings { return p.machine.settings(n, options) }
	opened.Wake = s.wake
	return opened, nil
}

// reachKernel opens what leads to the kernel, once it is known that there is
// something to lead to.
func (p *plugin) reachKernel(ctx context.Context, o options) error {
	if err := p.machine.probe(ctx, o); err != nil {
		return err
	}
	if p.kernel == (kernel{}) {
		k, err := p.machine.open()
		if err != nil {
			return err
		}
		p.kernel = k
	}
	_, err := p.kernel.Timeouts()
	if errors.Is(err, fs.ErrPermission) {
		return &sdk.Refusal{Why: "the kernel does not let this process change its virtual servers", Try: "run it as root, or with the capability NET_ADMIN"}
	}
	return err
}

// Close ends what this process does beside the host's calls, lets go of the lock, and of
// the kernel, which stays as it is.
func (p *plugin) Close() error {
	err := p.Dataplane.Close()
	p.kernel.close()
	p.kernel = kernel{}
	return err
}

// Report says how far the present call is, and what a change of mode would end.
func (p *plugin) Report() sdk.Report {
	r := p.Dataplane.Report()
	if why := p.swapImpact.Load(); why != nil {
		r.SwapImpact = *why
	}
	return r
}

// A session is what both families share: one IPVS, one list of addresses, one connection
// tracking. The frame's semaphore guards it.
type session struct {
	plugin   *plugin
	kernel   kernel
	options  options
	env      frame.Env
	families []*family

	mu       sync.Mutex // guards the kernel and what follows while families adopt, which they do at once
	adopting int        // families
	shared   reading    // what was read last; nothing, while no family adopts
	began    time.Time  // when that was

	writer    bool
	wake      chan struct{} // has the frame probe at once
	untracked int           // connections that a change of mode would end
}

// read reads what both families share. A reading is of both, so that one which began since a
// family began to adopt is as good as one of its own.
func (s *session) read(ctx context.Context, since time.Time) (v reading, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.began.After(since) {
		began := time.Now()
		if v, err = s.kernel.read(ctx); err != nil {
			return v, err
		}
		s.shared, s.began = v, began
	}
	return s.shared, nil
}

// adopts notes that n more families adopt, or fewer. What the last one has read is too large
// to be kept.
func (s *session) adopts(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.adopting += n; s.adopting == 0 {
		s.shared, s.began = reading{}, time.Time{}
	}
}

// hold hands the lock, or none, to what writes for both families. While there is one, the
// kernel tells of addresses that come and go.
func (s *session) hold(lock *ledger.Lock) {
	if s.writer = lock != nil; s.writer {
		s.kernel.Hold(lock.File())
		s.kernel.Subscribe(s.wake)
	} else {
		s.kernel.Hold(nil)
		s.kernel.Unsubscribe()
	}
}

// noteAddresses has the families note how the node's addresses have changed.
func (s *session) noteAddresses() {
	changes := s.kernel.Changes()
	for _, f := range s.families {
		f.moved = f.moved || changes.moved
		f.missed = f.missed || changes.missed
		f.lost = f.lost || slices.ContainsFunc(changes.lost, func(a netip.Addr) bool { return f.objects.bound[a] })
	}
}

// prepare tells IPVS itself of the node, before any Service, with the first family.
func (s *session) prepare(f *family) error {
	if !s.writer || f != s.families[0] {
		return nil
	}
	if err := s.seeUntracked(); err != nil {
		return err
	}
	if t := s.options.timeouts(); t != (timeouts{}) {
		return s.kernel.SetTimeouts(t)
	}
	return nil
}

// options are what the host's file may say of this plugin.
type options struct {
	Scheduler     string         `json:"scheduler"`
	StrictARP     bool           `json:"strictARP"`
	ExcludeCIDRs  []netip.Prefix `json:"excludeCIDRs"`
	TCPTimeout    duration       `json:"tcpTimeout"`
	TCPFinTimeout duration       `json:"tcpFinTimeout"`
	UDPTimeout    duration       `json:"udpTimeout"`
	Backend       string         `json:"backend"`
}

// schema describes options to the author of the file.
const schema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "scheduler": {"enum": ["rr", "wrr", "lc", "wlc", "lblc", "lblcr", "sh", "dh", "sed", "nq", "mh"], "default": "rr", "description": "how a virtual server chooses, unless its Service says otherwise"},
    "strictARP": {"type": "boolean", "default": false, "description": "answer ARP only for addresses of the interface that was asked; needed where something else announces the addresses of Services"},
    "excludeCIDRs": {"type": "array", "items": {"type": "string"}, "default": [], "description": "ranges in which virtual services are other programs', whatever they look like"},
    "tcpTimeout": {"type": "string", "default": "0s", "description": "after how long a silent TCP connection is forgotten; 0s: the kernel's own value"},
    "tcpFinTimeout": {"type": "string", "default": "0s", "description": "the same, after a FIN"},
    "udpTimeout": {"type": "string", "default": "0s", "description": "the same, for UDP"},
    "backend": {"enum": ["auto", "nft", "legacy"], "default": "auto", "x-pointsman-fixed": true, "description": "which of the kernel's two rule machines to write to; auto: the one in use on the node"}
  }
}`

// A duration is written as Go writes it: "15m".
type duration time.Duration

func (d *duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	v, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return err
	case v < 0, v > 0 && v < time.Second, v%time.Second != 0:
		return fmt.Errorf("%s is not a number of whole seconds", text)
	}
	*d = duration(v)
	return nil
}

func parseOptions(data []byte) (options, error) {
	o := options{Scheduler: "rr", Backend: "auto"}
	if err := frame.ParseOptions(mode, data, &o); err != nil {
		return o, err
	}
	o.Scheduler = cmp.Or(o.Scheduler, "rr")
	if !slices.Contains(schedulers, o.Scheduler) {
		return o, &sdk.Refusal{Field: "options.scheduler", Why: fmt.Sprintf("the kernel has no scheduler %q", o.Scheduler), Try: "one of " + strings.Join(schedulers, ", ")}
	}
	return o, iptables.CheckBackend(&o.Backend)
}

// timeouts are those that were asked for.
func (o options) timeouts() timeouts {
	return timeouts{time.Duration(o.TCPTimeout), time.Duration(o.TCPFinTimeout), time.Duration(o.UDPTimeout)}
}
