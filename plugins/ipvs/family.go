// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// A family is one IP family: its objects, and what makes the kernel follow them.
type family struct {
	session *session
	objects *objects
	rules   *ruleset.Rules[struct{}]
	kernel  kernel

	afresh      bool      // everything was read since IPVS was given the node
	moved       bool      // the node's addresses are others than Services were rendered for
	probed      time.Time // when the kernel was last asked for what may have been removed,
	reaped      time.Time // when destinations that have had their last connection were removed,
	idleChecked time.Time // and when what is due more often was done

	// extra is by how many entries a set of the kernel differs from what we know of
	// it, right after it was read and written; recounts says that it was read.
	extra    map[set]int
	recounts bool

	// What is left of a round of audits.
	auditServices []serviceKey
	auditEntries  []entry
}

var _ interface {
	frame.Family[desired]
	frame.Drainer
	frame.Forgetter
	frame.Sampler
	frame.Masquerader
} = (*family)(nil)

func newFamily(tool iptables.Tool, s *session) *family {
	rules, objects := ruleset.NewRules(ruleConfig(tool.Family), tool), newObjects(tool.Family)
	objects.have.rules = rules.Set
	return &family{session: s, objects: objects, rules: rules, kernel: s.kernel, extra: make(map[set]int)}
}

// Serves reports whether of is the family's.
func (f *family) Serves(of sdk.Family) bool { return of == f.objects.node.family }

// Masquerade is the hold on the chains that all dataplanes share.
func (f *family) Masquerade() *masquerade.Hold { return f.rules.Masquerade }

// Notes name chains that iptables cannot print.
func (f *family) Notes() []string { return f.rules.Notes() }

// Hold hands the lock to whatever writes.
func (f *family) Hold(lock *ledger.Lock) {
	f.session.hold(lock)
	f.rules.Hold(lock)
}

// Adopt reads parts of what the kernel has.
func (f *family) Adopt(ctx context.Context, which frame.Parts) (sdk.Role, error) {
	f.session.adopts(1)
	defer f.session.adopts(-1)
	read := parts(which)
	seen, err := f.look(ctx, read)
	if err != nil {
		return 0, err
	}
	f.recounts = which != frame.All && read.has(inSets)
	role := f.objects.adopt(seen, read, f.session.options.ExcludeCIDRs)
	f.afresh = f.afresh || which == frame.All
	f.moved = f.moved || !slices.Equal(f.nodePortAddrs(f.objects.node.node), f.objects.node.addrs)
	return role, nil
}

// Ours reports whether the tables have chains of this dataplane.
func (f *family) Ours() bool { return len(f.objects.have.rules.ObservedAll()) > 0 }

// look reads parts of what the kernel has.
func (f *family) look(ctx context.Context, read parts) (v reading, err error) {
	of, since := f.objects.node.family, time.Now()
	if read.has(inRules(of)) {
		if v.tables, err = f.rules.Read(ctx); err != nil {
			return v, err
		}
	}
	all, err := f.session.look(ctx, read&(inServices|inSets|inAddrs), since)
	if err != nil {
		return v, err
	}
	v.services, v.sets, v.addrs = all.services, all.sets[of], all.addrs.of(of)
	return v, nil
}

// Node takes what the host says of the node, and what addresses it has.
func (f *family) Node(n sdk.Node) error {
	if f.moved {
		addrs, err := f.kernel.Addrs()
		if err != nil {
			return err
		}
		f.objects.adopt(reading{addrs: addrs.of(f.objects.node.family)}, inAddrs, nil)
		f.moved = false
	}
	if f.afresh || !n.Equal(f.objects.node.node) { // else only addresses are others
		if err := f.session.prepare(f); err != nil {
			return err
		}
		f.afresh = false
	}
	f.objects.node = nodeConfig{family: f.objects.node.family, node: n, addrs: f.nodePortAddrs(n), scheduler: f.session.options.Scheduler}
	f.objects.touched.rules = true
	return nil
}

// nodePortAddrs are the addresses of the node that take node ports, in order.
func (f *family) nodePortAddrs(n sdk.Node) []netip.Addr {
	var all []netip.Addr
	for addr := range f.objects.have.others {
		if n.TakesNodePorts(addr) && !addr.IsLoopback() && !frame.OnLink(addr) {
			all = append(all, addr)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// Role is what the plan is for. Standby must not take away what still has connections.
func (f *family) Role(role sdk.Role) error {
	if role == sdk.Standby {
		if _, err := f.seeBusy(); err != nil {
			return err
		}
	}
	if f.objects.role != role {
		f.objects.role = role
		f.objects.touchAll()
	}
	return nil
}

// Ceiling is how many endpoints one Service may have, in one family: as many as one call writes
// in about two seconds. The kernel keeps the endpoints of a virtual service in a list and
// searches all of it for each that comes, so the time grows with the square of their number.
const Ceiling = 20_000

// Want is what svc needs, with a mark of its own if it needs one.
func (f *family) Want(svc sdk.Service) (desired, error) {
	if err := frame.TooMany(svc, Ceiling, "several Services, or the mode iptables"); err != nil {
		return desired{}, err
	}
	var mark uint32
	if needsMark(svc) {
		mark = f.objects.marks.take(svc.Name, f.objects.node)
	}
	return f.objects.node.want(svc, mark)
}

// Pieces are what Services need, as it was put.
func (f *family) Pieces() map[sdk.Name]desired { return f.objects.desired }

// Keep is what the kernel has of a Service.
func (f *family) Keep(name sdk.Name) desired { return f.objects.keep(name) }

// Put says what Services need.
func (f *family) Put(pieces map[sdk.Name]desired) { f.objects.put(pieces) }

// Plan is what the kernel lacks.
func (f *family) Plan() frame.Plan { return pending{f, f.objects.plan()} }

// A pending plan is one that a family is to take.
type pending struct {
	family *family
	plan   plan
}

// Steps are the plan for people.
func (p pending) Steps() []string { return p.plan.steps() }

// RemovedUDP returns the UDP frontends that the plan removes.
func (p pending) RemovedUDP() (all []netip.AddrPort) {
	for _, s := range p.plan {
		if s.verb == removeService && s.service.mark == 0 && s.service.protocol == sdk.UDP {
			all = append(all, s.service.addr)
		}
	}
	return all
}

// Apply takes the steps. What is said of a step of one Service is of that Service alone.
func (p pending) Apply(ctx context.Context) ([]sdk.Failure, error) {
	bad, err := p.family.write(ctx, p.plan)
	var failed []sdk.Failure
	for name, why := range bad {
		failed = append(failed, sdk.Failure{Name: name, Err: why})
	}
	if err == nil && len(bad) == 0 && p.family.recounts {
		p.family.recount()
		p.family.recounts = false // what differs from now on another program did
	}
	return failed, err
}

// Forget ends UDP flows to these Services that lead nowhere.
func (f *family) Forget(of sdk.Family, services []sdk.Service, step func()) (int, error) {
	return f.session.plugin.machine.forget(of, conntrack.Serving(of, services, f.takesNodePorts).Telling(step))
}

// ForgetEarly deletes connections to these Services that began before they were there.
func (f *family) ForgetEarly(of sdk.Family, services []sdk.Service, step func()) (int, error) {
	return f.session.plugin.machine.forgetEarly(of, services, f.takesNodePorts, step)
}

func (f *family) takesNodePorts(a netip.Addr) bool { return slices.Contains(f.objects.node.addrs, a) }

// Samples are how much the kernel has.
func (f *family) Samples() []sdk.Sample {
	labels := map[string]string{"ip_family": strings.Replace(f.objects.node.family.String(), "ip", "IP", 1)}
	return []sdk.Sample{
		{Name: "pointsman_ipvs_virtual_servers", Help: "Virtual services of the kernel's load balancer that are the dataplane's own.", Labels: labels, Value: float64(len(f.objects.have.services))},
		{Name: "pointsman_ipvs_addresses", Help: "Addresses of frontends on the dataplane's device.", Labels: labels, Value: float64(len(f.objects.have.vips))},
	}
}
