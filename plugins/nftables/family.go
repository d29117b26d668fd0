// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/flows"
	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/plugins/internal/writer"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// A family is the table of one IP family, as the frame sees it.
type family struct {
	options options
	log     *slog.Logger
	commits *commits
	marks   *marks
	notes   *notes
	cleaned writer.Cleaned // says that this process is to stand down

	ip               // never another, so that Inspect may read it beside a call
	conn *nftnl.Conn // the writer's, which owns the table; nil: this process is not the writer

	node    nodeConfig
	own     []netip.Addr // addresses that take node ports, in order
	role    sdk.Role
	desired map[sdk.Name]wanted
	have    observed

	touched map[sdk.Name]bool // Services of which desired may differ from have
	all     bool              // all of them
	shaped  bool              // the layout may differ, too

	refused, removals int // transactions that did not go in; of these, those that only remove

	addressed time.Time // when the node's addresses were looked at last
	looked    time.Time // when the chains of other programs were,
	foreign   bool      // and whether those may have changed since
	draining  flows.Draining
	recount   recount
}

var _ interface {
	frame.Family[wanted]
	frame.Drainer
	frame.Forgetter
	frame.Sampler
} = (*family)(nil)

func newFamily(of sdk.Family, o options, c *commits, m *marks, env frame.Env) *family {
	return &family{
		ip: ip{of}, node: nodeConfig{ip: ip{of}}, options: o, log: env.Log,
		commits: c, marks: m, notes: m.notes, foreign: true, cleaned: writer.CleanedIn(env.Dir, mode),
		desired: make(map[sdk.Name]wanted), touched: make(map[sdk.Name]bool),
	}
}

// Serves reports whether of is the family's.
func (f *family) Serves(of sdk.Family) bool { return of == f.node.Family }

// Hold opens the socket of the writer, which owns the table while it is open, unless the session
// before left one; or closes it, so that the next process can take the table.
func (f *family) Hold(lock *ledger.Lock) {
	if lock == nil {
		f.marks.stop()
		f.letGo()
		return
	}
	f.shaped = true // the table is to be taken
	if f.conn != nil {
		return
	}
	var err error
	if f.conn, err = nftnl.Dial(); err != nil {
		f.log.Warn("cannot open the writer's socket", "family", f.Family, "err", err) // every write says so
	}
}

// letGo closes the socket of the writer.
func (f *family) letGo() {
	if f.conn == nil {
		return
	}
	if err := f.conn.Close(); err != nil {
		f.log.Warn("cannot close the writer's socket", "family", f.Family, "err", err)
	}
	f.conn = nil
}

// succeed takes over the socket of the writer from the session before. Closed and opened again it
// would leave the table without an owner, and so open to other programs, for that time.
func (f *family) succeed(before []*family) {
	for _, b := range before {
		if b.ip == f.ip {
			f.conn, b.conn = b.conn, nil
		}
	}
}

// reader is a socket to read by, and what ends its use.
func (f *family) reader() (*nftnl.Conn, func(), error) {
	if f.conn != nil {
		return f.conn, func() {}, nil
	}
	conn, err := nftnl.Dial()
	if err != nil {
		return nil, nil, err
	}
	return conn, func() { _ = conn.Close() }, nil
}

// Adopt reads the table.
func (f *family) Adopt(ctx context.Context, _ frame.Parts) (sdk.Role, error) {
	conn, done, err := f.reader()
	if err != nil {
		return 0, err
	}
	defer done()
	if f.have, err = read(ctx, conn, f.node.ip); err != nil {
		return 0, err
	}
	f.have.batches = f.commits.count()
	f.all, f.shaped, f.foreign, f.node.parts = true, true, true, parts{}
	return f.have.role(), nil
}

// Node takes what the host says of the node, and what the kernel says of its addresses.
func (f *family) Node(n sdk.Node) error {
	f.node = nodeConfig{
		ip: f.ip, node: n, parts: f.node.parts,
		localhost: f.options.localhost(f.Family, n),
		liberal:   n.Conntrack.TCPBeLiberal || liberal(),
		counts:    f.options.CountConnections,
	}
	f.shaped = true
	var err error
	f.own, f.node.self, err = f.node.addresses()
	return err
}

// Role is that for which base chains are planned.
func (f *family) Role(r sdk.Role) error {
	f.role, f.shaped = r, true
	return nil
}

// Want is what svc comes to.
func (f *family) Want(svc sdk.Service) (wanted, error) { return want(svc) }

// Pieces are what Services come to, as it was put.
func (f *family) Pieces() map[sdk.Name]wanted { return f.desired }

// Keep is what the kernel has of a Service.
func (f *family) Keep(name sdk.Name) wanted { return f.have.services[name] }

// Put says what Services come to.
func (f *family) Put(all map[sdk.Name]wanted) {
	if len(f.desired) == 0 {
		f.desired = make(map[sdk.Name]wanted, len(all))
	}
	if len(f.touched) == 0 {
		f.touched = make(map[sdk.Name]bool, len(all))
	}
	for name, w := range all {
		if f.touched[name] = true; len(w.frontends) == 0 {
			delete(f.desired, name)
		} else {
			f.desired[name] = w
		}
	}
}

// Plan is what the table lacks.
func (f *family) Plan() frame.Plan {
	p := plan{family: f}
	afresh := f.have.otherwise
	if afresh {
		f.have = f.have.without()
		f.all = true
	}
	if f.all && len(f.have.services) == 0 {
		f.have.services = make(map[sdk.Name]wanted, len(f.desired))
		f.have.references = make(map[place]int, len(f.desired))
	}
	p.changes = make(changes, 0, len(f.touched))
	for name := range f.due() {
		have := f.have.services[name]
		c := changeOf(name, have, f.desired[name], f.have.free)
		grown := f.node.grow(f.Family, have) // the kernel has it already, unless it was just read
		f.shaped = f.node.grow(f.Family, c.to) || grown || f.shaped
		if !c.empty() {
			p.changes = append(p.changes, c)
		} else {
			f.have.serves(c)
		}
	}
	slices.SortFunc(p.changes, func(a, b *change) int { return cmp.Compare(len(a.come), len(b.come)) })
	p.linked = p.changes.link()
	if f.shaped {
		p.shape = f.shapes(afresh)
	}
	if f.shaped || f.all {
		p.fixed = f.fixed(p.changes)
	}
	return p
}

// due are the names of Services that are to be looked at.
func (f *family) due() iter.Seq[sdk.Name] {
	if !f.all {
		return maps.Keys(f.touched)
	}
	return func(yield func(sdk.Name) bool) {
		for name := range f.desired {
			if !yield(name) {
				return
			}
		}
		for name := range f.have.services {
			if _, also := f.desired[name]; !also && !yield(name) {
				return
			}
		}
	}
}

// shapes compares the layout, and the objects that no Service has.
func (f *family) shapes(afresh bool) shape {
	s := shape{afresh: afresh}
	left := maps.Clone(f.have.sets)
	for _, set := range layoutSets(f.ip, f.node.parts) {
		if !left[set.Name] {
			s.sets = append(s.sets, set)
		}
		delete(left, set.Name)
	}
	s.unused = slices.Sorted(maps.Keys(left))
	s.compare(f.have.chains, layout(f.node, f.role))
	s.take = f.conn != nil && !f.have.taken && f.have.flags&nftnl.Persist != 0
	return s
}

// fixed compares elements that are of no Service, and those that are otherwise than Services
// have them. Of what changes anyway, a change is left with what is there.
func (f *family) fixed(all changes) difference {
	var own []element
	for _, a := range f.own {
		own = append(own, element{"own", nftnl.Element{Key: string(a.AsSlice())}})
	}
	d := diff(f.have.own, own)
	d.gone = append(d.gone, f.have.stray...)
	missing := make(map[place]element, len(f.have.missing))
	for _, e := range f.have.missing {
		missing[e.place()] = e
	}
	for i := range all {
		all[i].gone = slices.DeleteFunc(all[i].gone, func(e element) bool {
			_, lacks := missing[e.place()]
			delete(missing, e.place())
			return lacks
		})
	}
	for _, e := range missing {
		d.come = append(d.come, e)
	}
	return d
}

// Forget ends UDP flows to these Services that lead nowhere.
func (f *family) Forget(of sdk.Family, services []sdk.Service, step func()) (int, error) {
	takes := func(a netip.Addr) bool { return slices.Contains(f.own, a) }
	return conntrack.Forget(of, conntrack.Serving(of, services, takes).Telling(step))
}

// Flows are what is left of the connections that were established when this dataplane began
// to drain.
func (f *family) Flows(services map[sdk.Name]sdk.Service, fresh bool) (int, error) {
	return f.draining.Count(f.Family, services, fresh)
}

// failures is how kube-proxy's metrics of its nftables mode begin.
const failures = "kubeproxy_sync_proxy_rules_nftables_"

// Samples are how much the kernel has, and how often it did not take what was written.
func (f *family) Samples() []sdk.Sample {
	labels := map[string]string{"ip_family": pick(f.ip, "IPv4", "IPv6")}
	return []sdk.Sample{
		{Name: "pointsman_nftables_elements", Help: "Elements in the sets and maps of the dataplane's table.", Labels: labels, Value: float64(f.have.total)},
		{Name: "pointsman_nftables_services", Help: "Ports of Services that the dataplane's table serves.", Labels: labels, Value: float64(len(f.have.services))},
		{Name: failures + "sync_failures_total", Labels: labels, Value: float64(f.refused)},
		{Name: failures + "cleanup_failures_total", Labels: labels, Value: float64(f.removals)},
	}
}
