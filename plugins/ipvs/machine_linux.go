// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// thisMachine is the one that this process runs on.
func thisMachine() machine {
	return machine{
		probe:       probe,
		release:     release,
		open:        openKernel,
		reach:       reach,
		rules:       openRules,
		ruled:       ruled,
		forget:      conntrack.Forget,
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

// A tool has the rules that a family's programs write.
type tool struct {
	iptables.Tool
	generation iptables.Generation // after the last thing that was done or seen
}

func (t *tool) String() string { return t.Prefix }

func (t *tool) place() masquerade.Place { return masquerade.At(t.Tool) }

func (t *tool) hold(lock *ledger.Lock, env frame.Env) {
	t.Waiting, t.Heard, t.Hold = env.Waiting, env.Step, nil
	if lock != nil {
		t.Hold = lock.File()
	}
}

func (t *tool) Restore(ctx context.Context, s *iptables.Script) error {
	defer t.changed()
	return t.Tool.Restore(ctx, s)
}

// changed reports whether tables are not as they were when this was last asked, or
// after the last Restore. It says so too where that cannot be known.
func (t *tool) changed() bool {
	generation, err := t.Generation("nat", "filter", "mangle")
	same := err == nil && generation == t.generation
	t.generation = generation
	return !same
}

// openRules finds the programs of both families, or of the one that there are any of.
func openRules(ctx context.Context, backend string, log *slog.Logger) (map[sdk.Family]ruleTool, error) {
	tools, err := iptables.OpenAll(ctx, backend, log)
	all := make(map[sdk.Family]ruleTool, len(tools))
	for _, t := range tools {
		all[t.Family] = &tool{Tool: t}
	}
	return all, err
}

// ruled are the programs of a family, of each backend that may have rules.
func ruled(ctx context.Context, of sdk.Family) (all []ruleTool, err error) {
	for _, t := range iptables.ToolsInUse(ctx, of) {
		all = append(all, &tool{Tool: t})
	}
	return all, ctx.Err()
}
