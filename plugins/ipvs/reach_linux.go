// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// reach opens what leads to the parts of the kernel that this node has: who cleans up
// must not load a module to find that it has nothing.
func (p *plugin) reach(ctx context.Context) (kernel, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER)
	if err != nil {
		return kernel{}, fmt.Errorf("open netlink: %w", err)
	}
	k := kernel{linker: &links{handle: handle}}
	if ipvsThere() {
		if k.balancer, err = openBalancer(); err != nil {
			return kernel{}, err
		}
	}
	if _, err := exec.LookPath("ipset"); err == nil {
		k.setKeeper = &ipset{handle: handle}
	}
	return k, ctx.Err()
}

func (k kernel) close() {
	if m, ok := k.balancer.(moby); ok {
		_ = m.Close()
	}
	if l, ok := k.linker.(*links); ok {
		l.handle.Close()
	}
}
