// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/pointsman/pointsman/host/admin"
)

// mixed is an EndpointSlice of web with an endpoint on another node and one that is not ready, and a Service with a load
// balancer address for one source range and the Local policy.
const mixed = `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-2, namespace: ns, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: p, port: 19000}]
endpoints: [{addresses: [NET.102], zone: z9, nodeName: far}, {addresses: [NET.103], conditions: {ready: false}}]
---
apiVersion: v1
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
endpoints: [{addresses: [NET.104], nodeName: far, targetRef: {kind: Pod, namespace: ns, name: guarded-a}}]
---
`

// TestVerbs runs the verbs beside a host that serves Services, of which some are invalid or in conflict. Package
// host/pointsman tests their arguments.
func TestVerbs(t *testing.T) {
	t.Parallel()
	s := servingSystem(t)
	s.manifest("mixed.yaml", mixed+serviceOf("empty", "NET.11", "TCP", 18081)+tcpService("zweb", "NET.10", 18080, "NET.101"))
	s.until("all are listed", func() error {
		if got := s.verb("service", "list"); strings.Count(got.out, "\n") != 5 || strings.Contains(got.out, "pending") {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	for _, tc := range []struct {
		words string // NET. is the prefix of the system's addresses
		code  int
		says  []string // regular expressions for lines of stdout, or of stderr if code is 1 or 64
	}{
		{"status", 2, []string{`4 Services, 4 EndpointSlices, 5 endpoints$`, `^unserved +ns/zweb`}},
		{"diff", 0, []string{`^nothing differs$`}},
		{"config validate", 0, []string{`host.yaml is good`}},
		{"config show --running", 0, []string{`mode: userspace`}},
		{"plugin list", 0, []string{`^userspace +serving`}},
		{"plugin info userspace", 0, []string{`^serves`}},
		{"plugin check userspace", 0, []string{`^this node can run userspace`}},
		{"plugin logs userspace", 0, nil},
		{"plugin logs usrspace", 1, []string{`there is userspace; try: pointsman plugin list`}},
		{"plugin restart nobody", 1, []string{`nobody`}},
		{"completion bash", 0, []string{`bash completion`}},
		{"service list", 0, []string{`^ns/web:p/tcp4 +served +\S+s +2/3 +0 +cluster +- +cluster-ip \S+10:18080$`, `^ns/empty:p/tcp4 +no endpoints +\S+s +0/0 `, `^ns/zweb:p/tcp4 +conflict +\S+s `}},
		{"service list -n other", 0, []string{`\A.*\n\z`}},
		{"service list --problems", 0, []string{`\A.*\nns/empty.*\nns/zweb.*\n\z`}},
		{"service list NET.11", 0, []string{`\A.*\nns/empty.*\n\z`}},
		{"service show ns/web", 0, []string{`^slices +web-1, web-2$`, `^ns/web:p/tcp4 is served for `, `^cluster-ip \S+10:18080 +\S+101:\d+, \S+102:\d+ +-$`,
			`102:\d+ +far +z9 +ready +used +it is on node far$`, `103:\d+ +- +- +not ready +it is not ready +its node is not given$`}},
		{"service show ns/empty", 0, []string{`^cluster-ip \S+11:18081 +nothing +-$`}},
		{"service show ns/zweb", 0, []string{`^problem +.*ns/web`, `^\S+T\S+ +warning +FrontendTaken +ns/zweb `}},
		{"service show ns/wbe", 1, []string{`no Service ns/wbe; try: pointsman service list`}},
		{"__complete service show ns/w", 0, []string{`^ns/web$`}},
		{"__complete mode swap ", 0, []string{`^userspace\b`}},
		{"events --since 1h", 0, []string{`^\S+T\S+ +warning +FrontendTaken +ns/zweb `}},
		{"events --since 1ns", 0, []string{`\A\z`}},
		{"explain 10.1.2.3 NET.10:18080", 0, []string{`^frontend +cluster-ip \S+10:18080 of ns/web:p/tcp4$`, `^endpoints +one of 2: its traffic policy is cluster$`,
			`^verdict +forward$`, `^state +served$`, `^served now +\S+101:\d+, \S+102:\d+$`, `^\S+102:\d+ +50% +`, `^\S+103:\d+ +it is not ready$`}},
		{"explain --try node NET.10:18080", 0, []string{`^caller +a process of this node, `, `^\S+101:\d+ +50% +.* connected$`, `^\S+102:\d+ +50% +.* refused$`,
			`^kernel now +(\S+:\d+, and from there it is up to the relay at \S+:\d+|not known: userspace cannot trace packets)$`}}, // tracing takes root
		{"explain outside:10.1.2.3 NET.11:18081", 0, []string{`^caller +another machine, as you say$`, `^verdict +reject$`}},
		{"explain outside:10.1.2.3 NET.13:18082", 0, []string{`^allowed +no: 10.1.2.3 is not in 198.51.100.0/24, `, `^verdict +drop$`}},
		{"explain pod:198.51.100.7 NET.13:18082", 0, []string{`^endpoints +one of 1: its traffic policy is local, but that applies only to callers from outside`, `^verdict +forward$`}},
		{"explain ns/guarded-a NET.10:18080", 1, []string{`ns/guarded-a is a pod's name, and a host knows only the addresses of pods; try: kubectl pointsman explain ns/guarded-a \S+:18080`}},
	} {
		words := strings.Split(strings.ReplaceAll(tc.words, "NET.", s.net), " ")
		if words[0] == "__complete" {
			words = append([]string{"__complete", "--config", s.path("host.yaml")}, words[1:]...)
		} else {
			words = append(words, "--config", s.path("host.yaml"))
		}
		got := s.run(words...)
		for again := 0; again < 20 && words[0] == "__complete" && strings.HasPrefix(got.out, ":"); again++ {
			got = s.run(words...) // on a busy node the host does not answer within the second that a shell waits
		}
		text := got.out
		if tc.code == 1 {
			text = got.err
		}
		for _, want := range append(tc.says, "") {
			if got.code != tc.code || !regexp.MustCompile("(?m)"+want).MatchString(text) {
				t.Errorf("pointsman %s exits %d, want %d with %q, and says\n%s%s", tc.words, got.code, tc.code, want, got.out, got.err)
			}
		}
	}
}

// TestFormats decodes the JSON and YAML of verbs.
func TestFormats(t *testing.T) {
	t.Parallel()
	s := servingSystem(t)
	for verb, kind := range map[string]string{
		"status":                    "Status",
		"plugin list":               "PluginList",
		"service list":              "ServiceList",
		"service show ns/web":       "ServiceDetail",
		"explain node 192.0.2.1:80": "Explanation",
		"events":                    "EventList",
		"plugin info userspace":     "Plugin",
		"diff":                      "Diff",
		"config show --running":     "Config",
	} {
		for format, decode := range map[string]func([]byte, any) error{"json": json.Unmarshal, "yaml": yaml.Unmarshal} {
			var meta struct {
				APIVersion string `json:"apiVersion" yaml:"apiVersion"`
				Kind       string `json:"kind" yaml:"kind"`
			}
			got := s.verb(append(strings.Fields(verb), "-o", format)...)
			if err := decode([]byte(got.out), &meta); err != nil || got.code != 0 || meta.Kind != kind || !strings.HasPrefix(meta.APIVersion, "pointsman.dev/v1") {
				t.Errorf("%s -o %s: %+v, %v: %+v", verb, format, meta, err, got)
			}
		}
	}
	var st admin.Status
	if err := json.Unmarshal([]byte(s.verb("status", "-o", "json").out), &st); err != nil {
		t.Fatal(err)
	}
	if !st.Healthy || st.Mode != "userspace" || st.Dataplane.Role != "active" || st.Services.Services != 1 || st.Host.PID != s.cmd.Process.Pid {
		t.Errorf("status is %+v", st)
	}
	if st.Warnings == nil || st.Unserved == nil || st.Config.Pending == nil {
		t.Errorf("empty lists are null: %+v", st)
	}
}

// TestNoHost runs verbs without a host, and then status --wait, which returns once the host is healthy.
func TestNoHost(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	for words, code := range map[string]int{
		"status -o json":            3,
		"status --until-well 200ms": 3,
		"service list":              3,
		"explain node 192.0.2.1:80": 3,
		"doctor":                    1,
		"events":                    3,
		"config show --running":     3,
		"plugin logs userspace":     3,
		"plugin list":               0,
		"plugin info userspace":     0,
		"cleanup --dry-run":         0,
	} {
		if got := s.verb(strings.Fields(words)...); got.code != code || code == 3 && !strings.Contains(got.err, "pointsman run") {
			t.Errorf("pointsman %s exits %d, want %d, and says\n%s%s", words, got.code, code, got.out, got.err)
		}
	}
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	waited := make(chan output, 1)
	go func() { waited <- s.verb("status", "--wait", "2m") }()
	s.start()
	if got := <-waited; got.code != 0 || !strings.Contains(got.out, "is well") {
		t.Errorf("status --wait says %+v", got)
	}
}

// TestFollow runs verbs that print until they are interrupted.
func TestFollow(t *testing.T) {
	t.Parallel()
	s := servingSystem(t)
	status, events, logs := s.follows("status", "--watch"), s.follows("events", "-f"), s.follows("plugin", "logs", "-f", "userspace")
	status("all        is well", "all        is well")
	events("PluginServing")
	s.manifest("taken.yaml", tcpService("zweb", "NET.10", 18080, "NET.101"))
	events("warning  FrontendTaken  ns/zweb")
	if got := s.verb("plugin", "restart", "userspace"); got.code != 0 {
		t.Fatalf("plugin restart says %+v", got)
	}
	logs("no chain KUBE-MARK-MASQ", "no chain KUBE-MARK-MASQ") // of both processes
	for _, v := range []func(...string){status, events, logs} {
		v()
	}
}

// follows starts a verb. The function that it returns waits for lines that contain its arguments. Without arguments, it
// interrupts the verb, and checks that it exits with 0.
func (s *system) follows(words ...string) func(lines ...string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), filepath.Join(binaries(s.t), "pointsman"), append(words, "--config", s.path("host.yaml"))...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	scan := bufio.NewScanner(out)
	return func(lines ...string) {
		s.t.Helper()
		late := time.AfterFunc(long, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		for _, want := range lines {
			var seen []string
			for scan.Scan() && !strings.Contains(scan.Text(), want) {
				seen = append(seen, scan.Text())
			}
			if !strings.Contains(scan.Text(), want) {
				s.t.Fatalf("%q never printed %q:\n%s", words, want, strings.Join(seen, "\n"))
			}
		}
		if len(lines) > 0 {
			return
		}
		_ = cmd.Process.Signal(syscall.SIGINT)
		for scan.Scan() { // until all is read: Wait closes the pipe
		}
		if err := cmd.Wait(); err != nil {
			s.t.Errorf("after SIGINT, %q ended with %v", words, err)
		}
	}
}
