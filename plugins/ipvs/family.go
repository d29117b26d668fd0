// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/reconcile"
	"github.com/pointsman/pointsman/plugins/internal/rules"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// A family implements frame.Family for one IP family.
type family struct {
	reconcile.Family[*piece, key, value]
	session *session
	objects *objects
	rules   *rules.Rules
	tables  iptables.Tables // the last reading
	kernel  kernel

	node   nodeConfig
	role   sdk.Role
	mark   uint32              // the last mark that nextMark returned, without its tag
	others map[netip.Addr]bool // addresses of the node on other devices

	nodePorts map[port]sdk.Name       // the Service of each node port
	named     map[serviceKey]sdk.Name // the Service that names an address of the node, and so takes precedence over node ports there

	unowned        map[serviceKey]state // until the first plan is applied: listed virtual servers that belong to no piece
	kubeProxyRules iptables.Plan        // removes the rules of kube-proxy in ipvs mode
	kubeProxySets  []string             // sets of kube-proxy in ipvs mode

	rulesChanged bool      // the node or the role has changed since the rules were planned
	addrsChanged bool      // the node's addresses have changed since Services were rendered
	addrLost     bool      // an address of ours was removed from our device
	eventsMissed bool      // events were lost, so an address may have been removed
	probedAt     time.Time // when Foreign last ran
	auditedAt    time.Time // when audit last ran
	reapedAt     time.Time // when reapDrained last ran
}

func newFamily(tool iptables.Tool, s *session) *family {
	f := &family{
		session: s, rules: rules.New(ruleConfig(), tool), kernel: s.kernel,
		node: nodeConfig{family: tool.Family}, rulesChanged: true,
		nodePorts: make(map[port]sdk.Name), named: make(map[serviceKey]sdk.Name),
		reapedAt: time.Now(), auditedAt: time.Now(), // wait one interval: a new process adopts first
	}
	f.rules.Reading = func(t iptables.Tables) error {
		f.tables = t
		return nil
	}
	f.objects = &objects{family: f}
	f.Family = reconcile.NewFamily(tool.Family, f, f.objects)
	f.Name, f.Partial, f.Batch = "ipvs "+tool.Family.String(), true, mostChanges
	f.Applied = func() { f.unowned = nil }
	return f
}

// mostChanges is the maximum number of changes in one batch. It bounds the memory that a batch needs.
const mostChanges = 10_000

// Masquerade returns the hold on the masquerade chains that all dataplanes share.
func (f *family) Masquerade() *masquerade.Hold { return f.rules.Masquerade }

// Hold passes the lock to everything that writes.
func (f *family) Hold(lock *ledger.Lock) {
	f.session.hold(lock)
	f.rules.Hold(lock)
}

// Parts that Adopt can read separately.
const (
	inRules frame.Parts = 1 << iota
	inObjects
)

// Adopt reads the given parts from the kernel.
func (f *family) Adopt(ctx context.Context, which frame.Parts) (role sdk.Role, err error) {
	if which == 0 {
		which = frame.All // the role follows from both
	}
	if which&inRules != 0 {
		if _, err := f.rules.List(ctx); err != nil {
			return 0, err
		}
		f.kubeProxyRules, f.rulesChanged, f.tables = kubeProxyLeftovers(f.tables), true, nil
	}
	if which&inObjects == 0 {
		return f.role, nil
	}
	if role, err = f.List(ctx); err != nil {
		return 0, err
	}
	for _, p := range f.Installed() {
		f.mark = max(f.mark, p.mark&^tagMask)
	}
	return role, nil
}

// Ours reports whether the tables have chains of this dataplane.
func (f *family) Ours() bool {
	return slices.ContainsFunc(f.node.chains(), func(c iptables.Chain) bool {
		_, found := f.rules.Found(c.ID)
		return found
	})
}

// setAddresses stores the addresses of the node. If they have changed, the host's next call renders all
// Services again.
func (f *family) setAddresses(a addresses) {
	others := make(map[netip.Addr]bool)
	for _, addr := range a.of(f.node.family).others {
		others[addr] = true
	}
	f.addrsChanged = f.addrsChanged || f.others != nil && !maps.Equal(others, f.others)
	f.others = others
}

// Node sets the node's configuration, and reads its addresses if they have changed.
func (f *family) Node(n sdk.Node) error {
	if f.addrsChanged {
		addrs, err := f.kernel.Addrs()
		if err != nil {
			return err
		}
		f.setAddresses(addrs)
		f.addrsChanged = false
	}
	if t := f.session.options.timeouts(); t != (timeouts{}) && f == f.session.families[0] { // both families have the same
		if err := f.kernel.SetTimeouts(t); err != nil {
			return err
		}
	}
	f.node = nodeConfig{family: f.node.family, node: n, addrs: f.nodePortAddrs(n), scheduler: f.session.options.Scheduler}
	f.rulesChanged = true
	clear(f.named)
	f.claimAddrs(f.Desired())
	return nil
}

// addrs returns the addresses on other devices of the node, sorted.
func (f *family) addrs() []netip.Addr {
	return slices.SortedFunc(maps.Keys(f.others), netip.Addr.Compare)
}

// nodePortAddrs returns the addresses of the node that take node ports, sorted.
func (f *family) nodePortAddrs(n sdk.Node) []netip.Addr {
	return slices.DeleteFunc(f.addrs(), func(a netip.Addr) bool {
		return !n.TakesNodePorts(a) || a.IsLoopback() || frame.OnLink(a)
	})
}

// Role sets the role.
func (f *family) Role(role sdk.Role) error {
	f.role, f.rulesChanged = role, true
	f.placeAll()
	return nil
}

// Ceiling is the maximum number of endpoints of a Service in one family. One call can write that many in about
// two seconds. The kernel keeps the destinations of a virtual server in a list and searches it for each new
// one, so the time grows with the square of the number.
const Ceiling = 20_000

// Want returns what svc needs, with its present mark.
func (f *family) Want(svc sdk.Service) (*piece, error) { return f.Render(svc, f.Installed()[svc.Name]) }

// Render returns what svc needs, with the mark of had, or a new mark if it needs one.
func (f *family) Render(svc sdk.Service, had *piece) (*piece, error) {
	if err := frame.TooMany(svc, Ceiling, "several Services, or the mode iptables"); err != nil {
		return nil, err
	}
	var mark uint32
	switch {
	case !needsMark(svc):
	case had != nil && f.node.canKeep(had.mark):
		mark = had.mark
	default:
		mark = f.node.nextMark(&f.mark)
	}
	return f.node.want(svc, mark)
}

// Plan returns the changes that the kernel needs.
func (f *family) Plan() frame.Plan {
	p := pending{family: f, objects: f.Reconciler.Plan()}
	if f.rulesChanged {
		p.rules, p.lead = f.planRules()
	}
	return p
}

// planRules plans the rules of every role, which are written before the objects, and returns the steps. It also
// removes jumps that the role must not have. lead reports whether jumps that lead new connections to this
// dataplane are to be added after the objects.
func (f *family) planRules() (steps []string, lead bool) {
	jumps := permanentJumps()
	if f.role == sdk.Active {
		jumps = append(jumps, slices.DeleteFunc(activeJumps(), func(j iptables.Jump) bool { return !f.rules.HasJump(j) })...)
	}
	f.rules.SetFixed(f.node.chains())
	f.rules.SetJumps(jumps, allJumps())
	return f.rules.Plan().Steps(), f.role == sdk.Active && len(jumps) < len(allJumps())
}

// writeRules writes the planned rules. It also applies an empty plan, which ends the suspicion that correct rules
// differ.
func (f *family) writeRules(ctx context.Context) error {
	_, err := f.rules.Plan().Apply(ctx)
	return err
}

// A pending plan is the plan of the reconciler with the rules to write around it. Rules that lead new
// connections here are added last and removed first. If kube-proxy in ipvs mode served before, its addresses
// and virtual servers are adopted before its rules are removed.
type pending struct {
	family  *family
	rules   []string // steps of the rules to write first
	lead    bool     // lead new connections here
	objects reconcile.Plan[*piece, key, value]
}

// kubeProxyLeftovers returns what removes kube-proxy's rules, and its sets, once this dataplane is Active in
// its place.
func (p pending) kubeProxyLeftovers() (rules iptables.Plan, sets []string) {
	if p.family.role != sdk.Active {
		return nil, nil
	}
	return p.family.kubeProxyRules, p.family.kubeProxySets
}

// Steps describes the plan.
func (p pending) Steps() []string {
	rules, sets := p.kubeProxyLeftovers()
	steps := append(p.rules, p.objects.Steps()...)
	if p.lead {
		steps = append(steps, "lead new connections to "+servicesChain)
	}
	steps = append(steps, rules.Steps()...)
	if len(sets) > 0 {
		steps = append(steps, "remove sets "+strings.Join(sets, " "))
	}
	return steps
}

// RemovedUDP returns the UDP frontends that the plan removes.
func (p pending) RemovedUDP() []netip.AddrPort { return p.objects.RemovedUDP() }

// Apply writes the plan.
func (p pending) Apply(ctx context.Context) ([]sdk.Failure, error) {
	f := p.family
	f.objects.writeRules = f.writeRules
	failed, err := p.objects.Apply(ctx)
	if err != nil || len(failed) > 0 {
		return failed, err // objects are missing; the frame makes another plan without the refused Services
	}
	if p.lead {
		f.rules.SetJumps(allJumps(), allJumps())
		if err := f.writeRules(ctx); err != nil {
			return nil, err
		}
	}
	rules, sets := p.kubeProxyLeftovers()
	if len(rules) > 0 {
		if err := f.rules.WriteBeside(ctx, rules); err != nil {
			return nil, err
		}
	}
	f.rulesChanged = false
	for _, set := range sets { // one by one: a set to which a foreign rule refers stays, which harms no Service
		if err := f.kernel.Restore(ctx, destroyLines([]string{set})); err != nil {
			f.session.env.Log.Info("kube-proxy set kept: it is in use", "set", set, "err", err)
		}
	}
	if f.role == sdk.Active {
		f.kubeProxyRules, f.kubeProxySets = nil, nil
	}
	return nil, nil
}

// Forget deletes the conntrack entries of UDP flows to these Services whose endpoint no longer serves.
func (f *family) Forget(of sdk.Family, services []sdk.Service, step func()) (int, error) {
	return f.session.plugin.machine.forget(of, conntrack.Serving(of, services, f.takesNodePorts).Telling(step))
}

// ForgetEarly deletes conntrack entries of connections to these Services that began before the Services
// existed.
func (f *family) ForgetEarly(of sdk.Family, services []sdk.Service, step func()) (int, error) {
	return f.session.plugin.machine.forgetEarly(of, services, f.takesNodePorts, step)
}

func (f *family) takesNodePorts(a netip.Addr) bool { return slices.Contains(f.node.addrs, a) }

// Tell adds metrics, and names the chains that iptables cannot print.
func (f *family) Tell(r *sdk.Report) {
	labels := map[string]string{"ip_family": strings.Replace(f.node.family.String(), "ip", "IP", 1)}
	r.Notes = append(r.Notes, f.rules.Notes()...)
	r.Samples = append(r.Samples, []sdk.Sample{
		{Name: "pointsman_ipvs_virtual_servers", Help: "Virtual services of the kernel's load balancer that are the dataplane's own.", Labels: labels, Value: float64(f.objects.counts[key{kind: ofServer}])},
		{Name: "pointsman_ipvs_addresses", Help: "Addresses of frontends on the dataplane's device.", Labels: labels, Value: float64(len(f.objects.bound))},
	}...)
}
