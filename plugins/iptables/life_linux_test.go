// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
)

func values(k kernel, paths ...string) string {
	k.Helper()
	var all []string
	for _, path := range paths {
		value, err := os.ReadFile(path)
		if err != nil {
			k.Skip("this kernel lacks a parameter: ", err)
		}
		all = append(all, strings.TrimSpace(string(value)))
	}
	return strings.Join(all, " ")
}

// The guard is in place before the kernel routes 127.0.0.0/8, and for as long as it does.
func TestKernelGuardIsWrittenFirst(t *testing.T) {
	onKernel(t, func(k kernel) {
		s := scenario(k.T, "node-port")
		p := k.start()
		guarded := func() bool {
			return strings.Contains(k.run("iptables-"+string(k.backend), "-S", "INPUT"), localnetGuard)
		}
		file := filepath.Join(k.TempDir(), "routed")
		undo := k.replaceRestore("cat " + sysctl.RouteLocalnet + " >>" + file + "; exec REAL \"$@\"")
		k.sync(p, s.Update(1))
		k.role(p, sdk.Active)
		undo()
		if text, err := os.ReadFile(file); err != nil || strings.Trim(string(text), "0\n") != "" || values(k, sysctl.RouteLocalnet) != "1" {
			k.Errorf("route_localnet must be 0 during the first write and 1 after it: %q, %v", text, err)
		}
		for _, role := range []sdk.Role{sdk.Draining, sdk.Standby, sdk.Active} {
			if k.role(p, role); values(k, sysctl.RouteLocalnet) == "1" && !guarded() {
				k.Errorf("in role %s the kernel routes 127.0.0.0/8 without the guard", role)
			}
		}
		none := s.Node
		none.NodePorts = nil
		for i, node := range []*sdk.Node{&none, &s.Node} {
			k.sync(p, sdk.Update{From: uint64(i + 1), To: uint64(i + 2), Node: node})
			if routed := values(k, sysctl.RouteLocalnet) == "1"; routed != (i == 1) || guarded() != routed {
				k.Errorf("the node has node ports: %t, the kernel routes 127.0.0.0/8: %t, guarded: %t", i == 1, routed, guarded())
			}
		}
		defer k.replaceRestore("cat " + sysctl.RouteLocalnet + " >>" + file + "; exec REAL \"$@\"")()
		if _, err := p.Cleanup(k.Context(), sdk.Leftovers{}); err != nil {
			k.Fatal(err)
		}
		if text, err := os.ReadFile(file); err != nil || strings.Trim(string(text), "0\n") != "" {
			k.Errorf("Cleanup removes the guard while the kernel routes 127.0.0.0/8: %q, %v", text, err)
		}
	})
}

// The metrics that operators of kube-proxy use exist under kube-proxy's names.
func TestKernelSamples(t *testing.T) {
	onKernel(t, func(k kernel) {
		s := several(20)
		p := k.start()
		k.sync(p, s.Update(1))
		k.role(p, sdk.Active)
		one := s.Services[3]
		one.Cluster = append(one.Cluster, sdk.Endpoint{Addr: netip.MustParseAddrPort("10.180.1.1:8080")})
		k.sync(p, sdk.Update{From: 1, To: 2, Set: []sdk.Service{one}})
		undo := k.replaceRestore("kill -9 $$")
		if _, err := p.Sync(k.Context(), sdk.Update{From: 2, To: 3, Delete: []sdk.Name{one.Name}}); err == nil {
			k.Error("Sync succeeded although iptables-restore was killed")
		}
		undo()
		rules := 0
		for id, have := range k.tables(sdk.IPv4) {
			if isOurs(id) && id.Table == "nat" {
				rules += len(have)
			}
		}
		want := map[string]float64{"_total nat": float64(rules), "_restore_failures_total ": 1, "_partial_restore_failures_total ": 1}
		for _, sample := range p.Report().Samples {
			name, ok := strings.CutPrefix(sample.Name, "kubeproxy_sync_proxy_rules_iptables")
			if value, known := want[name+" "+sample.Labels["table"]]; ok && known && sample.Labels["ip_family"] == "IPv4" {
				delete(want, name+" "+sample.Labels["table"])
				if sample.Value != value {
					k.Errorf("%s %v is %g, want %g", sample.Name, sample.Labels, sample.Value, value)
				}
			}
		}
		if len(want) > 0 {
			k.Errorf("missing samples %v in %v", want, p.Report().Samples)
		}
	})
}
