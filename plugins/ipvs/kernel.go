// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/ipvslist"
	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
)

// The interfaces to the kernel. Each method that changes something sends one request: a netlink message, or the
// run of a program. A change that was already made is no error.

// A balancer is IPVS.
type balancer interface {
	Services() (map[serviceKey]state, error) // all of them, including those of other programs

	// Send sends up to maxSteps steps and returns the kernel's answer for each. Unlike in the other methods, a
	// change that was already made is an error.
	Send([]step) ([]error, error)

	// Exists reports whether a virtual server exists.
	Exists(serviceKey) (bool, error)

	// Table returns the destinations of all virtual servers, except those selected by a mark that have none.
	Table() (table, error)

	SetTimeouts(timeouts) error // zero values stay as they are
	Close() error
}

// maxSteps is the maximum number of steps in one Send. If all fail, the answers still fit the kernel's receive
// buffer.
const maxSteps = 128

type load = ipvslist.Load

// timeouts are the idle timeouts of connections.
type timeouts struct{ TCP, TCPFin, UDP time.Duration }

// A setKeeper is ipset.
type setKeeper interface {
	Sets(context.Context) (map[sdk.Family]setsOf, error)
	Add(entry, note) error
	Remove(entry) error
	Count(set, sdk.Family) (int, error)              // number of members
	Restore(ctx context.Context, lines string) error // for many changes at once
	Hold(*os.File)                                   // the file that programs inherit
}

// setsOf are the sets of one family, ours and kube-proxy's.
type setsOf struct {
	exist            map[set]bool // of ours
	entries          map[entry]note
	kubeProxySets    []string       // names of kube-proxy's sets
	kubeProxyEntries map[entry]bool // members of kube-proxy's sets that have a counterpart of ours
}

// A linker manages the addresses of the node.
type linker interface {
	Addrs() (addresses, error)
	RemoveDevice() error
	Bind(netip.Addr) error // creates the device if needed
	Unbind(netip.Addr) error

	// Subscribe makes the kernel report changes of addresses until Unsubscribe, and wakes a reader on each
	// change. Changes returns the changes since its last call.
	Subscribe(wake chan<- struct{})
	Changes() addrChanges
	Unsubscribe()
	Close() error
}

// addresses are the addresses of the node.
type addresses struct {
	device bool // our device exists
	ours   []netip.Addr
	others []netip.Addr // addresses on all other devices
}

// addrChanges are changes of the node's addresses.
type addrChanges struct {
	lost   []netip.Addr // addresses removed from our device
	missed bool         // events were lost
	moved  bool         // addresses on other devices have changed
}

// A kernel combines the interfaces.
type kernel struct {
	balancer
	setKeeper
	linker
}

// do sends steps. A change that was already made is no error.
func (k kernel) do(all ...step) error {
	for steps := range slices.Chunk(all, maxSteps) {
		answers, err := k.Send(steps)
		if err != nil {
			return err
		}
		for i, err := range answers {
			if err != nil && !errors.Is(err, syscall.EEXIST) && !errors.Is(err, syscall.ESRCH) && !errors.Is(err, syscall.ENOENT) {
				return fmt.Errorf("%s: %w", steps[i], err)
			}
		}
	}
	return nil
}

// of returns the addresses of one family.
func (a addresses) of(f sdk.Family) addresses {
	other := func(addr netip.Addr) bool { return sdk.FamilyOf(addr) != f }
	return addresses{
		device: a.device,
		ours:   slices.DeleteFunc(slices.Clone(a.ours), other),
		others: slices.DeleteFunc(slices.Clone(a.others), other),
	}
}

// A machine is everything outside this process that the plugin uses. Tests replace it.
type machine struct {
	probe   func(context.Context, options) error // returns a *sdk.Refusal that says what the machine lacks
	release func() string                        // the kernel's release

	open func(present bool) (kernel, error) // with present only the parts that exist; others are nil

	rules      func(ctx context.Context, backend string, note func(string)) ([]iptables.Tool, error) // "auto": the backend that the node uses
	toolsInUse func(context.Context, sdk.Family) []iptables.Tool                                     // programs of backends that may have rules

	forget      func(sdk.Family, conntrack.Served) (int, error)
	forgetEarly func(sdk.Family, []sdk.Service, func(netip.Addr) bool, func()) (int, error)
	parameters  string // folder of the kernel parameters
	connections string // the file in which IPVS lists connections
}

// close closes the handles to the kernel.
func (k kernel) close() {
	if k.balancer != nil {
		k.balancer.Close()
	}
	if k.linker != nil {
		k.linker.Close()
	}
}

// settings returns the kernel parameters for the node, the options and the kernel's release.
func (m machine) settings(n sdk.Node, o options) sysctl.Settings {
	var all sysctl.Settings
	must := func(name, value string) {
		all = append(all, sysctl.Setting{Path: m.parameters + "net/ipv4/" + name, Value: value, Must: true, First: true})
	}
	must("vs/conntrack", "1")                 // rules see translated packets, and a swap keeps connections
	must("vs/expire_nodest_conn", "1")        // clients of a removed destination get another one
	must("vs/expire_quiescent_template", "1") // also clients with affinity
	must("ip_forward", "1")
	if hasPortReuseBug(m.release()) {
		must("vs/conn_reuse_mode", "0")
	}
	if o.StrictARP {
		must("conf/all/arp_ignore", "1")
		must("conf/all/arp_announce", "2")
	}
	return append(all, sysctl.Conntrack(m.parameters, n.Conntrack)...)
}

// hasPortReuseBug reports whether this kernel release delays a client that reuses a port by a second, or sends
// it to a draining destination. 5.9 fixed that. https://github.com/kubernetes/kubernetes/issues/81775
func hasPortReuseBug(release string) bool {
	var version [2]int
	n, _ := fmt.Sscanf(release, "%d.%d", &version[0], &version[1])
	return n == 2 && slices.Compare(version[:], []int{5, 9}) < 0
}
