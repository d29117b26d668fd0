// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/host/admin"
)

// guarded is a Service with a load balancer address for one source range, and the Local policy.
const guarded = `apiVersion: v1
kind: Service
metadata: {name: guarded, namespace: ns}
spec:
  type: LoadBalancer
  allocateLoadBalancerNodePorts: false
  externalTrafficPolicy: Local
  loadBalancerSourceRanges: [198.51.100.0/24]
  clusterIP: NET.12
  clusterIPs: [NET.12]
  ipFamilies: [IPv4]
  ipFamilyPolicy: SingleStack
  ports: [{name: p, port: 18082, protocol: TCP}]
status: {loadBalancer: {ingress: [{ip: NET.13}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: guarded-1, namespace: ns, labels: {kubernetes.io/service-name: guarded}}
addressType: IPv4
ports: [{name: p, port: 18082}]
endpoints: [{addresses: [NET.104], nodeName: far, targetRef: {kind: Pod, namespace: ns, name: guarded-a}}, {addresses: [NET.105], nodeName: far, conditions: {ready: false}}]
---
`

// TestExplain runs explain for packets to the Services of the manifests.
func TestExplain(t *testing.T) {
	t.Parallel()
	s := servingSystem(t)
	s.manifest("mixed.yaml", fmt.Sprintf(mixed, backendPort))
	s.manifest("empty.yaml", serviceOf("empty", "NET.11", "TCP", 18081))
	s.manifest("guarded.yaml", guarded)
	s.until("all are served", func() error {
		if got := s.verb("service", "list"); strings.Count(got.out, "\n") != 4 || strings.Contains(got.out, "pending") {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	web, empty, internal, vip := s.net+"10:18080", s.net+"11:18081", s.net+"12:18082", s.net+"13:18082"
	for _, tt := range []struct {
		words string
		code  int
		says  []string // regular expressions for stdout, or for stderr if code is not 0
	}{
		{"10.1.2.3 " + web, 0, []string{`^frontend +cluster-ip \S+10:18080 of ns/web:p/tcp4$`, `^allowed +yes: `, `^endpoints +one of 2: its traffic policy is cluster$`,
			`^verdict +forward$`, `^state +served$`, `^served now +\S+101:\d+, \S+102:\d+$`, `^\S+102:\d+ +50% +`, `^\S+103:\d+ +it is not ready$`}},
		{"--try node " + web, 0, []string{`^caller +a process of this node, `, `^verdict +forward$`, `^\S+101:\d+ +50% +.* connected$`, `^\S+102:\d+ +50% +.* refused$`,
			`^kernel now +(\S+:\d+, and from there it is up to the relay at \S+:\d+|not known: userspace cannot trace packets)$`}}, // tracing takes root
		{"outside:10.1.2.3 " + empty, 0, []string{`^caller +another machine, as you say$`, `^verdict +reject$`}},
		{"outside:10.1.2.3 " + vip, 0, []string{`^allowed +no: 10.1.2.3 is not in 198.51.100.0/24, `, `^verdict +drop$`}},
		{"outside:198.51.100.7 " + vip, 0, []string{`^endpoints +none of the 1 is on this node, and its traffic policy is local$`, `^verdict +drop$`, `^\S+104:18082 +it is on node far$`, `^\S+105:18082 +it is on node far$`}},
		{"pod:198.51.100.7 " + vip, 0, []string{`^endpoints +one of 1: its traffic policy is local, but that applies only to callers from outside`, `^verdict +forward$`, `^\S+105:18082 +it is not ready$`}},
		{"pod:198.51.100.7 " + internal, 0, []string{`^verdict +forward$`, `^\S+104:18082 +100% +`}},
		{"10.1.2.3 " + web + "/udp", 0, []string{`^frontend +none: \S+ is an address of ns/web, which is not reached at port 18080/udp$`, `^verdict +pass$`}},
		{"10.1.2.3 203.0.113.77:80", 0, []string{`^frontend +none: no Service is reached at 203.0.113.77:80/tcp$`}},
		{"web " + web, 64, []string{`"web" is not a caller: want an address, node, pod:ADDRESS or outside:ADDRESS; try: pointsman explain`}},
		{"ns/guarded-a " + web, 1, []string{`ns/guarded-a is a pod's name, and a host knows only the addresses of pods; try: kubectl pointsman explain ns/guarded-a \S+:18080`}},
		{"node 10.0.0.1", 64, []string{`want ADDRESS:PORT, such as`}},
		{"node ns/web:80", 64, []string{`ns/web:80 is no address: want one at which the Service is reached; try: pointsman service show ns/web$`}},
		{"node 10.0.0.1/udp", 64, []string{`want ADDRESS:PORT|want tcp`}},
		{"node from 10.0.0.1:80", 64, []string{`--help`}},
		{"node", 64, []string{`--help`}},
	} {
		got := s.verb(append([]string{"explain"}, strings.Fields(tt.words)...)...)
		text := got.out
		if tt.code != 0 {
			text = got.err
		}
		for _, want := range tt.says {
			if got.code != tt.code || !regexp.MustCompile("(?m)"+want).MatchString(text) {
				t.Errorf("pointsman explain %s exits %d, want %d with %q, and says\n%s%s", tt.words, got.code, tt.code, want, got.out, got.err)
			}
		}
	}
	var x admin.Explanation
	if err := json.Unmarshal([]byte(s.verb("explain", "10.1.2.3", web, "-o", "json").out), &x); err != nil {
		t.Fatal(err)
	}
	if x.Kind != "Explanation" || x.Service != "ns/web:p/tcp4" || len(x.Endpoints) != 2 || x.Endpoints[0].Share != 0.5 || x.Programmed == nil || x.Programmed.Differs != "" {
		t.Errorf("%+v", x)
	}
}
