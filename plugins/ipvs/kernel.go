// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/ipvslist"
	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
)

// What we ask of the kernel, in a few verbs. Each of those that change something is
// one request: a netlink message, or a program that is run. Doing what is done
// already is no error.

// A balancer is IPVS.
type balancer interface {
	Services() (map[serviceKey]state, error) // all, also other programs'

	// Send takes up to atOnce steps to the kernel, and returns what it says of each. To
	// it, doing what is done already is an error.
	Send([]step) ([]error, error)

	// Exists reports whether there is a virtual service.
	Exists(serviceKey) (bool, error)

	// Table are the destinations of all virtual services at once, but for those of marks that have none.
	Table() (table, error)

	Timeouts() (timeouts, error)
	SetTimeouts(timeouts) error // zero: as it is
	Close() error
}

// atOnce is how many steps are sent at once. If all fail, what the kernel says of them
// fits the buffer that it has for us.
const atOnce = 128

type load = ipvslist.Load

// timeouts are after how long a connection that says nothing is forgotten.
type timeouts struct{ TCP, TCPFin, UDP time.Duration }

// A setKeeper has the sets.
type setKeeper interface {
	Sets(context.Context) (map[sdk.Family]setsOf, error)
	Add(entry, note) error
	Remove(entry) error
	Has(entry) (bool, error)
	Count(set, sdk.Family) (int, error)              // how many entries it has
	Restore(ctx context.Context, lines string) error // many at once
	Hold(*os.File)                                   // what programs that are run keep open
}

// A shape is how the kernel's set of a name is made.
type shape uint8

const (
	missing shape = iota
	strange       // another program made it, without room for what ours has
	right
)

// setsOf are the sets of one family, ours and kube-proxy's.
type setsOf struct {
	shapes  map[set]shape
	entries map[entry]note
	relics  []string       // kube-proxy's, by the kernel's names
	proxied map[entry]bool // what is in those of which we have one of the kind
}

// A linker has the addresses.
type linker interface {
	Addrs() (addresses, error)
	RemoveDevice() error
	Bind(netip.Addr) error // makes the device if there is none
	Unbind(netip.Addr) error

	// Subscribe has the kernel tell which addresses come and go, until Unsubscribe, and
	// wakes a reader when it does. Changes are those since it was last called.
	Subscribe(wake chan<- struct{})
	Changes() addrChanges
	Unsubscribe()
	Close() error
}

// addresses are those of the node.
type addresses struct {
	device bool // ours is there
	ours   []netip.Addr
	others []netip.Addr // on all other devices
}

// addrChanges are how the node's addresses changed.
type addrChanges struct {
	lost   []netip.Addr // which left our device
	missed bool         // and there was more
	moved  bool         // the others are not as they were listed last
}

// A kernel is all of them.
type kernel struct {
	balancer
	setKeeper
	linker
}

// do takes one step about a virtual service. What is done already is no error.
func (k kernel) do(s step) error {
	answers, err := k.Send([]step{s})
	if err != nil {
		return err
	}
	switch err := answers[0]; {
	case errors.Is(err, syscall.EEXIST) && s.verb == addService:
		s.verb = setService
		return k.do(s)
	case errors.Is(err, syscall.EEXIST) && s.verb == addDest:
		s.verb = weighDest
		return k.do(s)
	case errors.Is(err, syscall.ESRCH) && s.verb == removeService, errors.Is(err, syscall.ENOENT) && s.verb == removeDest:
		return nil
	default:
		return err
	}
}

// of are the addresses of one family.
func (a addresses) of(f sdk.Family) addresses {
	other := func(addr netip.Addr) bool { return sdk.FamilyOf(addr) != f }
	return addresses{
		device: a.device,
		ours:   slices.DeleteFunc(slices.Clone(a.ours), other),
		others: slices.DeleteFunc(slices.Clone(a.others), other),
	}
}

// A machine is what this process reaches outside of itself. A test has a machine of its own.
type machine struct {
	probe   func(context.Context, options) error // a *sdk.Refusal says what the machine lacks
	release func() string                        // of its kernel

	open  func() (kernel, error)                // all of the kernel
	reach func(context.Context) (kernel, error) // what there is of it: parts may be nil

	rules func(ctx context.Context, backend string, note func(string)) ([]iptables.Tool, error) // "auto": as the node does
	ruled func(context.Context, sdk.Family) []iptables.Tool                                     // those that may have rules

	forget      func(sdk.Family, conntrack.Served) (int, error)
	forgetEarly func(sdk.Family, []sdk.Service, func(netip.Addr) bool, func()) (int, error)
	tracked     func(sdk.Family, func(flow)) error // tells what connection tracking knows
	parameters  string                             // the folder of the kernel's parameters
	connections string                             // where IPVS lists them
}

// close lets go of the kernel.
func (k kernel) close() {
	if k.balancer != nil {
		k.balancer.Close()
	}
	if k.linker != nil {
		k.linker.Close()
	}
}

// settings are the kernel's parameters that the node, the options and the kernel's
// release ask for.
func (m machine) settings(n sdk.Node, o options) sysctl.Settings {
	var all sysctl.Settings
	must := func(name, value string) {
		all = append(all, sysctl.Setting{Path: m.parameters + "net/ipv4/" + name, Value: value, Must: true, First: true})
	}
	must("vs/conntrack", "1")                 // rules see what IPVS does, and a swap keeps its connections
	must("vs/expire_nodest_conn", "1")        // a client that was sent to a destination that is gone is sent to another
	must("vs/expire_quiescent_template", "1") // also a client that sticks
	must("ip_forward", "1")
	if reusesBadly(m.release()) {
		must("vs/conn_reuse_mode", "0")
	}
	if o.StrictARP {
		must("conf/all/arp_ignore", "1")
		must("conf/all/arp_announce", "2")
	}
	return append(all, sysctl.Conntrack(m.parameters, n.Conntrack)...)
}

// reusesBadly reports whether a kernel of this release makes a client that uses a
// port again wait for a second, or go to a destination that is being drained. Since 5.9 it
// is right by itself; before 4.1 there is no choice.
// https://github.com/kubernetes/kubernetes/issues/81775
func reusesBadly(release string) bool {
	major, rest, _ := strings.Cut(release, ".")
	minor, _, _ := strings.Cut(rest, ".")
	x, _ := strconv.Atoi(major)
	y, _ := strconv.Atoi(strings.TrimRight(minor, "-+abcdefghijklmnopqrstuvwxyz"))
	return (x > 4 || x == 4 && y >= 1) && (x < 5 || x == 5 && y < 9)
}
