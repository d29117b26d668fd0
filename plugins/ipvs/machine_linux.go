// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
)

// thisMachine is the one that this process runs on.
func thisMachine() machine {
	return machine{
		probe:       probe,
		release:     release,
		open:        openKernel,
		reach:       reach,
		rules:       iptables.OpenAll,
		ruled:       iptables.ToolsInUse,
		forget:      conntrack.Forget,
		forgetEarly: conntrack.ForgetEarly,
		tracked:     tracked,
		parameters:  sysctl.Folder,
		connections: "/proc/thread-self/net/ip_vs_conn",
	}
}

func release() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "" // then no release needs more than others
	}
	return unix.ByteSliceToString(name.Release[:])
}

// openKernel opens what leads to the kernel of this thread's network namespace.
func openKernel() (kernel, error) {
	balancer, err := openBalancer()
	if err != nil {
		return kernel{}, err
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		balancer.Close()
		return kernel{}, fmt.Errorf("open netlink: %w", err)
	}
	return kernel{balancer, new(ipset), &links{handle: handle}}, nil
}

// reach opens what leads to the parts of the kernel that this node has: cleaning up must
// not load a module to find that it has nothing.
func reach(ctx context.Context) (kernel, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return kernel{}, fmt.Errorf("open netlink: %w", err)
	}
	k := kernel{linker: &links{handle: handle}}
	if ipvsThere() {
		balancer, err := openBalancer()
		if err != nil {
			k.close()
			return kernel{}, err
		}
		k.balancer = balancer
	}
	if _, err := exec.LookPath("ipset"); err == nil {
		k.setKeeper = new(ipset)
	}
	return k, ctx.Err()
}

// oldestIPSet is the first version of ipset whose sets can hold a mark beside an
// entry.
var oldestIPSet = [2]int{6, 22}

// probe finds out whether this node can do it. What is missing is a *sdk.Refusal that says
// what would help.
func probe(ctx context.Context, o options) error {
	if err := hasIPVS(ctx); err != nil {
		return err
	}
	if err := hasIPSet(ctx); err != nil {
		return err
	}
	if err := hasModules(ctx); err != nil {
		return err
	}
	return hasScheduler(ctx, o.Scheduler)
}

// hasIPVS reports, by a refusal, that the kernel has no IPVS. It is asked before the
// library is, which would look once and never again.
func hasIPVS(ctx context.Context) error {
	if ipvsThere() {
		return nil
	}
	_ = exec.CommandContext(ctx, "modprobe", "-q", "ip_vs").Run() // what comes of it is seen below
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if ipvsThere() {
		return nil
	}
	return &sdk.Refusal{Why: "this kernel has no IPVS, or has not loaded it", Try: "modprobe ip_vs"}
}

func ipvsThere() bool {
	_, err := netlink.GenlFamilyGet("IPVS")
	return err == nil
}

var versionWord = regexp.MustCompile(`v(\d+)\.(\d+)`)

// hasIPSet reports, by a refusal, that the program is missing or too old.
func hasIPSet(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "ipset", "--version").Output()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	want := fmt.Sprintf("%d.%d", oldestIPSet[0], oldestIPSet[1])
	found := versionWord.FindSubmatch(out)
	if err != nil && found == nil {
		return &sdk.Refusal{Why: "there is no ipset in PATH", Try: "apt-get install ipset (" + want + " or later)"}
	}
	major, minor := 0, 0
	if found != nil {
		major, _ = strconv.Atoi(string(found[1]))
		minor, _ = strconv.Atoi(string(found[2]))
	}
	if slices.Compare([]int{major, minor}, oldestIPSet[:]) < 0 {
		return &sdk.Refusal{Why: fmt.Sprintf("ipset is %q, and version %s or later is needed", bytes.TrimSpace(out), want), Try: "apt-get install ipset (" + want + " or later)"}
	}
	return nil
}

// hasModules reports, by a refusal, that the kernel could not load what a device or a
// rule of ours will ask for.
func hasModules(ctx context.Context) error {
	for _, module := range []string{"dummy", "xt_set"} {
		if absent(ctx, module) {
			return &sdk.Refusal{Why: "there is no module " + module + " for this kernel", Try: "install it, and then: modprobe " + module}
		}
	}
	return ctx.Err()
}

// hasScheduler reports, by a refusal, that the kernel could not load a scheduler.
func hasScheduler(ctx context.Context, name string) error {
	if module := "ip_vs_" + name; absent(ctx, module) {
		return &sdk.Refusal{Field: "options.scheduler", Why: "there is no module " + module + " for this kernel", Try: "install it, and then: modprobe " + module + "; or choose another scheduler"}
	}
	return ctx.Err()
}

// absent reports whether a module is neither loaded nor known to modprobe. A process that does not
// even know that of IPVS, which is there, as in a container without the node's modules,
// knows nothing: then the kernel itself will tell.
func absent(ctx context.Context, module string) bool {
	if _, err := os.Stat("/sys/module/" + module); err == nil {
		return false
	}
	denies := func(module string) bool {
		return errors.As(exec.CommandContext(ctx, "modprobe", "-n", "-q", module).Run(), new(*exec.ExitError))
	}
	return denies(module) && !denies("ip_vs") && ctx.Err() == nil
}

// tracked tells of each connection that the kernel's connection tracking knows, in
// the network namespace of the calling thread.
func tracked(of sdk.Family, tell func(flow)) error {
	inet := netlink.InetFamily(unix.AF_INET)
	if of == sdk.IPv6 {
		inet = unix.AF_INET6
	}
	h, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer h.Close()
	all, err := h.ConntrackTableList(netlink.ConntrackTable, inet)
	for _, f := range all {
		from, ok1 := netip.AddrFromSlice(f.Forward.SrcIP)
		to, ok2 := netip.AddrFromSlice(f.Forward.DstIP)
		for _, p := range []sdk.Protocol{sdk.TCP, sdk.SCTP} {
			if ok1 && ok2 && number(p) == uint16(f.Forward.Protocol) {
				tell(flow{p, netip.AddrPortFrom(from.Unmap(), f.Forward.SrcPort), netip.AddrPortFrom(to.Unmap(), f.Forward.DstPort)})
			}
		}
	}
	return err
}
