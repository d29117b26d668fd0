// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

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
		rules:       iptables.OpenAll,
		toolsInUse:  iptables.ToolsInUse,
		forget:      conntrack.Forget,
		forgetEarly: conntrack.ForgetEarly,
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

// openKernel opens handles to the kernel in the network namespace of the calling thread; with present only to the
// parts that this node has: Cleanup must not load the IPVS module only to find that there is nothing to remove.
func openKernel(present bool) (kernel, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return kernel{}, fmt.Errorf("open netlink: %w", err)
	}
	k := kernel{linker: &links{handle: handle}}
	if !present || isIPVSLoaded() {
		balancer, err := openBalancer()
		if err != nil {
			handle.Close()
			return kernel{}, err
		}
		k.balancer = balancer
	}
	if _, err := exec.LookPath("ipset"); err == nil || !present {
		k.setKeeper = new(ipset)
	}
	return k, nil
}

// probe checks whether this node can run the mode. If not, it returns a *sdk.Refusal that says what to do.
func probe(ctx context.Context, o options) error {
	if err := hasIPVS(ctx); err != nil {
		return err
	}
	if _, err := exec.LookPath("ipset"); err != nil {
		return &sdk.Refusal{Why: "there is no ipset in PATH", Try: "apt-get install ipset"}
	}
	return hasModules(ctx, o.Scheduler)
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

// hasModules returns a refusal if the kernel cannot load a module that the device, the rules or the scheduler
// needs.
func hasModules(ctx context.Context, scheduler string) error {
	for _, module := range []string{"dummy", "xt_set", "ip_vs_" + scheduler} {
		if isModuleMissing(ctx, module) {
			return &sdk.Refusal{Why: "there is no module " + module + " for this kernel", Try: "install it, and then: modprobe " + module}
		}
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
