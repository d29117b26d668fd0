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

// A family is one IP family, as the frame sees it: its pieces, the kernel that has them, and the rules beside it.
type family struct {
	reconcile.Family[*piece, key, value]
	session *session
	objects *objects
	rules   *rules.Rules
	tables  iptables.Tables // as they were read last
	kernel  kernel

	node   nodeConfig
	role   sdk.Role
	mark   uint32              // the one that was given last, without its tag
	others map[netip.Addr]bool // addresses on other devices of the node
	busy   busy                // in Standby: what still has connections

	nodePorts map[port]sdk.Name       // which Service has a node port,
	named     map[serviceKey]sdk.Name // and which names an address of the node, and so takes precedence there

	adopted time.Time            // when Adopt began last
	unowned map[serviceKey]state // until the first plan was applied: what was listed, and is of no piece
	relics  iptables.Plan        // what removes the rules of a kube-proxy in its ipvs mode,
	proxied []string             // and its sets

	reruled     bool      // the rules may not be those of the node and the role
	afresh      bool      // everything was read since IPVS was given the node
	moved       bool      // the node's addresses are others than Services were rendered for
	lost        bool      // an address of ours was removed from our device,
	missed      bool      // or may have been
	recounts    bool      // a repair has read the kernel
	probed      time.Time // when the kernel was last asked for what may have been removed,
	reaped      time.Time // when destinations that have had their last connection were removed,
	idleChecked time.Time // and when what is due more often was done

	audits int        // how many there were
	round  []sdk.Name // whose entries are left of a round of audits
}

func newFamily(tool iptables.Tool, s *session) *family {
	f := &family{
		session: s, rules: rules.New(ruleConfig(), tool), kernel: s.kernel,
		node: nodeConfig{family: tool.Family}, reruled: true,
		nodePorts: make(map[port]sdk.Name), named: make(map[serviceKey]sdk.Name),
		reaped: time.Now(), // not at once: what a process finds is adopted first
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

// mostChanges is how many changes are handed to the kernel at once: memory for many more would be needed for a moment only.
const mostChanges = 10_000

// Masquerade is the hold on the chains that all dataplanes share.
func (f *family) Masquerade() *masquerade.Hold { return f.rules.Masquerade }

// Hold hands the lock to whatever writes.
func (f *family) Hold(lock *ledger.Lock) {
	f.session.hold(lock)
	f.rules.Hold(lock)
}

// The parts that Adopt reads by themselves.
const (
	inRules frame.Parts = 1 << iota
	inObjects
)

// Adopt reads parts of what the kernel has.
func (f *family) Adopt(ctx context.Context, which frame.Parts) (role sdk.Role, err error) {
	if which == 0 {
		which = frame.All // the role stands in both
	}
	f.adopted = time.Now()
	f.session.adopts(1)
	defer f.session.adopts(-1)
	if which&inRules != 0 {
		if _, err := f.rules.List(ctx); err != nil {
			return 0, err
		}
		f.relics, f.reruled, f.tables = relics(f.tables), true, nil
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
	f.recounts = which != frame.All
	f.afresh = f.afresh || which == frame.All
	return role, nil
}

// Ours reports whether the tables have chains of this dataplane.
func (f *family) Ours() bool {
	return slices.ContainsFunc(f.node.chains(), func(c iptables.Chain) bool {
		_, found := f.rules.Found(c.ID)
		return found
	})
}

// setAddresses notes which addresses the node has. If they are others than before, all Services are rendered again.
func (f *family) setAddresses(a addresses) {
	others := make(map[netip.Addr]bool)
	for _, addr := range a.of(f.node.family).others {
		others[addr] = true
	}
	f.moved = f.moved || f.others != nil && !maps.Equal(others, f.others)
	f.others = others
}

// Node takes what the host says of the node, and what addresses it has.
func (f *family) Node(n sdk.Node) error {
	if f.moved {
		addrs, err := f.kernel.Addrs()
		if err != nil {
			return err
		}
		f.setAddresses(addrs)
		f.moved = false
	}
	if f.afresh || !n.Equal(f.node.node) { // else only addresses are others
		if err := f.session.prepare(f); err != nil {
			return err
		}
		f.afresh = false
	}
	f.node = nodeConfig{family: f.node.family, node: n, addrs: f.nodePortAddrs(n), scheduler: f.session.options.Scheduler}
	f.reruled = true
	clear(f.named)
	f.claim(f.Desired())
	return nil
}

// addrs are the addresses on other devices of the node, in order.
func (f *family) addrs() []netip.Addr {
	return slices.SortedFunc(maps.Keys(f.others), netip.Addr.Compare)
}

// nodePortAddrs are the addresses of the node that take node ports, in order.
func (f *family) nodePortAddrs(n sdk.Node) []netip.Addr {
	return slices.DeleteFunc(f.addrs(), func(a netip.Addr) bool {
		return !n.TakesNodePorts(a) || a.IsLoopback() || frame.OnLink(a)
	})
}

// Role is what the plan is for. Standby must not take away what still has connections.
func (f *family) Role(role sdk.Role) error {
	if role == sdk.Standby {
		if _, err := f.seeBusy(); err != nil {
			return err
		}
	}
	f.role, f.reruled = role, true
	f.placeAll()
	return nil
}

// Ceiling is how many endpoints one Service may have, in one family: as many as one call writes
// in about two seconds. The kernel keeps the endpoints of a virtual service in a list and
// searches all of it for each that comes, so the time grows with the square of their number.
const Ceiling = 20_000

// Want is what svc needs, with the mark that it has.
func (f *family) Want(svc sdk.Service) (*piece, error) { return f.Render(svc, f.Installed()[svc.Name]) }

// Render is what svc needs, with the mark of had, or a new one if it needs one.
func (f *family) Render(svc sdk.Service, had *piece) (*piece, error) {
	if err := frame.TooMany(svc, Ceiling, "several Services, or the mode iptables"); err != nil {
		return nil, err
	}
	var mark uint32
	switch {
	case !needsMark(svc):
	case had != nil && f.node.fits(had.mark):
		mark = had.mark
	default:
		mark = f.node.nextMark(&f.mark)
	}
	return f.node.want(svc, mark)
}

// Plan is what the kernel lacks.
func (f *family) Plan() frame.Plan {
	p := pending{family: f, objects: f.Reconciler.Plan()}
	if f.reruled {
		p.standing, p.leading = f.planRules()
	}
	return p
}

// A rulesWrite is one write of rules: these jumps, and the chains that they lead to.
type rulesWrite struct {
	jumps []iptables.Jump
	steps []string // of what is written, for people; none: nothing is
}

// planRules is what rules lack: what stands in every role, and, to be written later, what
// leads new connections to this dataplane once it is Active. In another role what led them
// is taken away first.
func (f *family) planRules() (standing, leading rulesWrite) {
	standing.jumps, leading.jumps = permanent(), allJumps()
	if f.role == sdk.Active {
		standing.jumps = append(standing.jumps, slices.DeleteFunc(catching(), func(j iptables.Jump) bool { return !f.rules.HasJump(j) })...)
	}
	f.rules.SetFixed(f.node.chains())
	f.rules.SetJumps(standing.jumps, allJumps())
	standing.steps = f.rules.Plan().Steps()
	if f.role == sdk.Active && len(standing.jumps) < len(leading.jumps) {
		leading.steps = []string{"lead new connections to " + wayIn}
	}
	return standing, leading
}

// writeRules writes rules. What was doubted, and is as it should be, is doubted no more.
func (f *family) writeRules(ctx context.Context, r rulesWrite) error {
	if len(r.steps) > 0 {
		f.rules.SetJumps(r.jumps, allJumps())
	}
	_, err := f.rules.Plan().Apply(ctx)
	return err
}

// A pending plan is the plan of the reconciler with the rules to write around it. Rules that catch new connections are added last
// and removed first. Where a kube-proxy in its ipvs mode was, its addresses and virtual servers are adopted before its rules are removed.
type pending struct {
	family            *family
	standing, leading rulesWrite
	objects           reconcile.Plan[*piece, key, value]
}

// relics are the sets of a kube-proxy whose place is taken, with what removes its rules.
func (p pending) relics() (rules iptables.Plan, sets []string) {
	if p.family.role != sdk.Active {
		return nil, nil
	}
	return p.family.relics, p.family.proxied
}

// Steps are the plan for people.
func (p pending) Steps() []string {
	rules, sets := p.relics()
	steps := slices.Concat(p.standing.steps, p.objects.Steps(), p.leading.steps, rules.Steps())
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
	f.objects.writeRules = func(ctx context.Context) error { return f.writeRules(ctx, p.standing) }
	failed, err := p.objects.Apply(ctx)
	if err != nil {
		return nil, err
	}
	if len(p.leading.steps) > 0 {
		if err := f.writeRules(ctx, p.leading); err != nil {
			return nil, err
		}
	}
	rules, sets := p.relics()
	if len(rules) > 0 {
		if err := f.rules.WriteBeside(ctx, rules); err != nil {
			return nil, err
		}
	}
	f.reruled = false
	if len(sets) > 0 {
		f.dropRelics(ctx, sets)
	}
	if f.role == sdk.Active {
		f.relics, f.proxied = nil, nil
	}
	if f.recounts && len(failed) == 0 {
		f.objects.recount()
		f.recounts = false // what differs from now on another program did
	}
	return failed, nil
}

// dropRelics removes sets of kube-proxy's. One to which another program's rule leads stays: that
// costs no Service.
func (f *family) dropRelics(ctx context.Context, sets []string) {
	err := f.kernel.Restore(ctx, destroy(sets))
	switch {
	case err == nil:
	case len(sets) == 1:
		f.session.env.Log.Info("a set that kube-proxy left stays", "set", sets[0], "err", err)
	default: // the first that stays has kept those after it
		for _, set := range sets {
			f.dropRelics(ctx, []string{set})
		}
	}
}

// Forget ends UDP flows to these Services that lead nowhere.
func (f *family) Forget(of sdk.Family, services []sdk.Service, step func()) (int, error) {
	return f.session.plugin.machine.forget(of, conntrack.Serving(of, services, f.takesNodePorts).Telling(step))
}

// ForgetEarly deletes connections to these Services that began before they were there.
func (f *family) ForgetEarly(of sdk.Family, services []sdk.Service, step func()) (int, error) {
	return f.session.plugin.machine.forgetEarly(of, services, f.takesNodePorts, step)
}

func (f *family) takesNodePorts(a netip.Addr) bool { return slices.Contains(f.node.addrs, a) }

// Tell adds how much the kernel has, and names chains that iptables cannot print.
func (f *family) Tell(r *sdk.Report) {
	labels := map[string]string{"ip_family": strings.Replace(f.node.family.String(), "ip", "IP", 1)}
	r.Notes = append(r.Notes, f.rules.Notes()...)
	r.Samples = append(r.Samples, []sdk.Sample{
		{Name: "pointsman_ipvs_virtual_servers", Help: "Virtual services of the kernel's load balancer that are the dataplane's own.", Labels: labels, Value: float64(f.objects.counts[key{kind: ofServer}])},
		{Name: "pointsman_ipvs_addresses", Help: "Addresses of frontends on the dataplane's device.", Labels: labels, Value: float64(len(f.objects.bound))},
	}...)
}
