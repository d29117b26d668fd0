// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
)

// ipvsNow reads the virtual services of the calling thread's network namespace.
func ipvsNow(foreign func(Server) bool) (balancer, error) {
	text, err := os.ReadFile("/proc/thread-self/net/ip_vs")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return balancer{}, fmt.Errorf("list the virtual services of IPVS: %w", err)
	}
	return balancer{
		services: virtualServices(string(text)),
		unclear:  unlike,
		kept:     kept,
		expires:  sysctl("net/ipv4/vs/expire_quiescent_template"),
		foreign:  foreign,
	}, nil
}

// unlike is why it cannot be told what IPVS does: a parameter has it do something else.
func unlike() error {
	for name, usual := range map[string]string{"conntrack": "1", "backup_only": "0", "drop_packet": "0"} {
		data, err := os.ReadFile("/proc/sys/net/ipv4/vs/" + name)
		value := strings.TrimSpace(string(data))
		switch {
		case errors.Is(err, os.ErrNotExist) && name != "conntrack":
		case err != nil:
			return unknownf("IPVS: net.ipv4.vs.%s cannot be read: %v", name, err)
		case value != usual:
			return unknownf("IPVS: net.ipv4.vs.%s is %s, and only what it does with %s is known", name, value, usual)
		}
	}
	return nil
}

// kept looks for a client among IPVS's connections. What cannot be read does not have it.
func kept(v *service, client netip.Addr) (netip.AddrPort, bool) {
	list, err := os.Open("/proc/thread-self/net/ip_vs_conn")
	if err != nil {
		return netip.AddrPort{}, false
	}
	defer list.Close()
	for lines := bufio.NewScanner(list); lines.Scan(); {
		if at, is := template(lines.Text(), v, client); is {
			return at, true
		}
	}
	return netip.AddrPort{}, false
}
