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
	"time"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// families are the two IP families.
var families = []sdk.Family{sdk.IPv4, sdk.IPv6}

// mode is the plugin's name. Locks and kernel parameters are held under this name.
const mode = "ipvs"

// Description describes the plugin. It does not depend on the node.
var Description = sdk.Description{
	Name:     mode,
	Version:  "0.1.0",
	Features: sdk.Features,
	Limits:   []sdk.Limit{sdk.LimitAffinityPerFrontend, sdk.LimitNodePortsAtAddresses, sdk.LimitTakesAddresses},
	Options:  []byte(schema),
}

// New returns the dataplane. It keeps its ledger in dir (ledger.Dir on a node).
func New(dir string) sdk.Dataplane { return newPlugin(dir, thisMachine()) }

func newPlugin(dir string, m machine) *plugin {
	p := &plugin{machine: m, dir: dir, session: new(session)}
	p.Dataplane = frame.New(frame.Mode[*piece]{Description: Description, Open: p.open, Sweep: p.sweepAll, Elsewhere: sweepRules(false).Elsewhere}, dir)
	return p
}

// A plugin is a frame.Dataplane that also implements Inspect, Trace and affinity transfer.
type plugin struct {
	*frame.Dataplane[*piece]
	machine machine
	dir     string

	// The fields below are used only in calls of the frame, by one goroutine at a time.
	options options
	kernel  kernel
	session *session
}

// open begins a session. It checks for IPVS and the programs, and finds the iptables backend that the node
// uses.
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

// reachKernel opens the handles to the kernel after it has checked that the kernel supports IPVS.
func (p *plugin) reachKernel(ctx context.Context, o options) error {
	if err := p.machine.probe(ctx, o); err != nil {
		return err
	}
	if p.kernel == (kernel{}) {
		k, err := p.machine.open(false)
		if err != nil {
			return err
		}
		p.kernel = k
	}
	_, err := p.kernel.Exists(serviceKey{family: sdk.IPv4, mark: 1}) // like all requests, it needs NET_ADMIN
	if errors.Is(err, fs.ErrPermission) {
		return &sdk.Refusal{Why: "the kernel does not let this process change its virtual servers", Try: "run it as root, or with the capability NET_ADMIN"}
	}
	return err
}

// Close ends background work and closes the ledger lock and the handles to the kernel. The kernel's state stays
// as it is.
func (p *plugin) Close() error {
	err := p.Dataplane.Close()
	p.kernel.close()
	p.kernel = kernel{}
	return err
}

// A session has what both families share: IPVS, the addresses of the node, and conntrack. The frame's semaphore
// guards it.
type session struct {
	plugin   *plugin
	kernel   kernel
	options  options
	env      frame.Env
	families []*family

	wake chan struct{} // wakes the frame to probe at once

	mu sync.Mutex // guards kernel while the families adopt concurrently
}

// read reads the kernel. The families adopt concurrently, but the kernel takes one request at a time.
func (s *session) read(ctx context.Context) (reading, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kernel.read(ctx)
}

// hold passes the lock (nil: none) to the programs that write. While this process is the writer, the kernel
// reports changes of addresses to it.
func (s *session) hold(lock *ledger.Lock) {
	if lock != nil {
		s.kernel.Hold(lock.File())
		s.kernel.Subscribe(s.wake)
	} else {
		s.kernel.Hold(nil)
		s.kernel.Unsubscribe()
	}
}

// recordAddrChanges records in both families how the node's addresses have changed.
func (s *session) recordAddrChanges() {
	changes := s.kernel.Changes()
	for _, f := range s.families {
		f.addrsChanged = f.addrsChanged || changes.moved
		f.eventsMissed = f.eventsMissed || changes.missed
		f.addrLost = f.addrLost || slices.ContainsFunc(changes.lost, func(a netip.Addr) bool { return f.objects.bound[a] })
	}
}

// options are the plugin's options in the host's config file.
type options struct {
	Scheduler     string         `json:"scheduler"`
	StrictARP     bool           `json:"strictARP"`
	ExcludeCIDRs  []netip.Prefix `json:"excludeCIDRs"`
	TCPTimeout    duration       `json:"tcpTimeout"`
	TCPFinTimeout duration       `json:"tcpFinTimeout"`
	UDPTimeout    duration       `json:"udpTimeout"`
	Backend       string         `json:"backend"`
}

// schema is the JSON schema of options.
const schema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "scheduler": {"enum": ["rr", "wrr", "lc", "wlc", "lblc", "lblcr", "sh", "dh", "sed", "nq", "mh"], "default": "rr", "description": "scheduler of virtual servers"},
    "strictARP": {"type": "boolean", "default": false, "description": "answer ARP requests only for addresses of the receiving interface; needed if another program announces the addresses of Services"},
    "excludeCIDRs": {"type": "array", "items": {"type": "string"}, "default": [], "description": "address ranges whose virtual servers belong to other programs and are never changed"},
    "tcpTimeout": {"type": "string", "default": "0s", "description": "idle timeout of TCP connections; 0s: the kernel's default"},
    "tcpFinTimeout": {"type": "string", "default": "0s", "description": "the same, after a FIN"},
    "udpTimeout": {"type": "string", "default": "0s", "description": "the same, for UDP"},
    "backend": {"enum": ["auto", "nft", "legacy"], "default": "auto", "x-pointsman-fixed": true, "description": "iptables backend to write to; auto: the one in use on the node"}
  }
}`

// A duration is a time.Duration in JSON, written as Go writes it: "15m".
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

// timeouts returns the configured timeouts.
func (o options) timeouts() timeouts {
	return timeouts{time.Duration(o.TCPTimeout), time.Duration(o.TCPFinTimeout), time.Duration(o.UDPTimeout)}
}
