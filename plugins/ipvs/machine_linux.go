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

// thisMachine returns the machine on which this process runs.
func thisMachine() machine {
	return machine{
		probe:       probe,
		release:     release,
		open:        openKernel,
		openPresent: openPresent,
		rules:       iptables.OpenAll,
		toolsInUse:  iptables.ToolsInUse,
		forget:      conntrack.Forget,
		forgetEarly: conntrack.ForgetEarly,
		eachTracked: eachTracked,
		parameters:  sysctl.Folder,
		connections: "/proc/thread-self/net/ip_vs_conn",
	}
}

func release() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "" // settings then skips what depends on the release
	}
	return unix.ByteSliceToString(name.Release[:])
}

// openKernel opens handles to the kernel in the network namespace of the calling thread.
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

// openPresent opens handles to the parts of the kernel that this node has. Cleanup must not load the IPVS module only
// to find that there is nothing to remove.
func openPresent(ctx context.Context) (kernel, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return kernel{}, fmt.Errorf("open netlink: %w", err)
	}
	k := kernel{linker: &links{handle: handle}}
	if isIPVSLoaded() {
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

// oldestIPSet is the first version of ipset that supports marks (skbinfo).
var oldestIPSet = [2]int{6, 22}

// probe checks whether this node can run the mode. If not, it returns a *sdk.Refusal that says what to do.
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

// hasIPVS returns a refusal if the kernel has no IPVS. It must run before moby's library, which looks for IPVS
// only once.
func hasIPVS(ctx context.Context) error {
	if isIPVSLoaded() {
		return nil
	}
	_ = exec.CommandContext(ctx, "modprobe", "-q", "ip_vs").Run() // the check below shows whether it worked
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if isIPVSLoaded() {
		return nil
	}
	return &sdk.Refusal{Why: "this kernel has no IPVS, or has not loaded it", Try: "modprobe ip_vs"}
}

func isIPVSLoaded() bool {
	_, err := netlink.GenlFamilyGet("IPVS")
	return err == nil
}

var versionWord = regexp.MustCompile(`v(\d+)\.(\d+)`)

// hasIPSet returns a refusal if ipset is missing or too old.
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

// hasModules returns a refusal if the kernel cannot load the modules that the device and the rules need.
func hasModules(ctx context.Context) error {
	for _, module := range []string{"dummy", "xt_set"} {
		if isModuleMissing(ctx, module) {
			return &sdk.Refusal{Why: "there is no module " + module + " for this kernel", Try: "install it, and then: modprobe " + module}
		}
	}
	return ctx.Err()
}

// hasScheduler returns a refusal if the kernel cannot load a scheduler.
func hasScheduler(ctx context.Context, name string) error {
	if module := "ip_vs_" + name; isModuleMissing(ctx, module) {
		return &sdk.Refusal{Field: "options.scheduler", Why: "there is no module " + module + " for this kernel", Try: "install it, and then: modprobe " + module + "; or choose another scheduler"}
	}
	return ctx.Err()
}

// isModuleMissing reports whether a module is neither loaded nor known to modprobe. In a container without the node's
// modules modprobe does not even know ip_vs, which is loaded. Then its answer means nothing, and absent returns
// false.
func isModuleMissing(ctx context.Context, module string) bool {
	if _, err := os.Stat("/sys/module/" + module); err == nil {
		return false
	}
	denies := func(module string) bool {
		return errors.As(exec.CommandContext(ctx, "modprobe", "-n", "-q", module).Run(), new(*exec.ExitError))
	}
	return denies(module) && !denies("ip_vs") && ctx.Err() == nil
}

// eachTracked calls tell for each TCP and SCTP connection in conntrack, in the network namespace of the calling
// thread.
func eachTracked(of sdk.Family, tell func(flow)) error {
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
			if ok1 && ok2 && protocolNumber(p) == uint16(f.Forward.Protocol) {
				tell(flow{p, netip.AddrPortFrom(from.Unmap(), f.Forward.SrcPort), netip.AddrPortFrom(to.Unmap(), f.Forward.DstPort)})
			}
		}
	}
	return err
}
