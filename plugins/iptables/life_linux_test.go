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
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// forwarded returns the first packet of s that an endpoint answers.
func forwarded(t *testing.T, s sdktest.Scenario) sdktest.Packet {
	t.Helper()
	for _, p := range s.Packets {
		if p.Want.Verdict == sdk.Forward && p.From.From != sdk.OnNode {
			return p
		}
	}
	t.Fatal("no packet of the scenario is forwarded")
	return sdktest.Packet{}
}

// An established connection continues with the same endpoint when the tables are flushed and repaired, when the process
// restarts, and while the dataplane drains. While Draining, the plugin reports the number of connections.
func TestKernelConnectionsLast(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) {
		s, _ := g.Place(scenario(k.T, "cluster-ip"))
		p := k.start()
		k.sync(p, s.Update(1))
		k.role(p, sdk.Active)
		stage, err := g.Open(k.Context(), p, s)
		if err != nil {
			k.Fatal(err)
		}
		defer stage.Close()
		flow, err := stage.Dial(k.Context(), forwarded(k.T, s))
		if err != nil {
			k.Fatal(err)
		}
		first, err := flow.Ask(k.Context())
		if err != nil {
			k.Fatal(err)
		}
		same := func(when string) {
			k.Helper()
			if now, err := flow.Ask(k.Context()); err != nil || now != first {
				k.Errorf("%s: %v answers, %v; before, %v answered", when, now, err, first)
			}
		}
		k.flush()
		same("while the tables are empty")
		k.eventually("the tables are repaired", func() bool { return len(k.differences(s, sdk.Active)) == 0 })
		same("after the tables were repaired")
		p.die()
		same("while no process runs")
		p = k.start()
		k.sync(p, s.Update(1))
		same("with a new process")
		k.role(p, sdk.Draining)
		same("while it drains")
		k.eventually("one connection is reported", func() bool { return p.Report().Flows == 1 })
		flow.Close()
		k.eventually("no connection is reported", func() bool { return p.Report().Flows == 0 })
	})
}

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
		first := filepath.Join(k.TempDir(), "first")
		done := k.replaceRestore("cat " + sysctl.RouteLocalnet + " >>" + first + "; exec REAL \"$@\"")
		k.sync(p, s.Update(1))
		k.role(p, sdk.Active)
		done()
		if text, err := os.ReadFile(first); err != nil || !strings.Contains(string(text), "0") || strings.Contains(string(text), "1") || values(k, sysctl.RouteLocalnet) != "1" {
			k.Errorf("route_localnet must be 0 during the first write and 1 after it: %q, %v", text, err)
		}
		for _, role := range []sdk.Role{sdk.Active, sdk.Draining, sdk.Standby, sdk.Active} {
			if role == sdk.Active {
				k.sync(p, s.Update(1))
			}
			k.role(p, role)
			if values(k, sysctl.RouteLocalnet) == "1" && !guarded() {
				k.Errorf("in role %s the kernel routes 127.0.0.0/8 without the guard", role)
			}
		}
		none := s.Node
		none.NodePorts = nil
		k.sync(p, sdk.Update{From: 1, To: 2, Node: &none})
		if values(k, sysctl.RouteLocalnet) != "0" || guarded() {
			k.Errorf("the node has no node ports, and route_localnet is %s", values(k, sysctl.RouteLocalnet))
		}
		next := sdk.Update{From: 2, To: 3, Node: &s.Node}
		k.sync(p, next)
		if values(k, sysctl.RouteLocalnet) != "1" {
			k.Fatal("the node has node ports again, but the kernel does not route 127.0.0.0/8")
		}
		file := filepath.Join(k.TempDir(), "routed")
		undo := k.replaceRestore("cat " + sysctl.RouteLocalnet + " >>" + file + "; exec REAL \"$@\"")
		defer undo()
		if _, err := p.Cleanup(k.Context(), sdk.Leftovers{}); err != nil {
			k.Fatal(err)
		}
		if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), "1") {
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
