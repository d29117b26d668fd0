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

	"github.com/pointsman/pointsman/host/admin"
)

// mixed is an EndpointSlice of web with an endpoint on another node and one that is not ready.
const mixed = `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-2, namespace: ns, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports:
- {name: p, port: %d}
endpoints:
- {addresses: [NET.102], zone: z9, nodeName: far}
- {addresses: [NET.103], conditions: {ready: false}}
---
`

// TestServiceVerbs runs the verbs about Services, of which some are invalid or in conflict.
func TestServiceVerbs(t *testing.T) {
	t.Parallel()
	s := servingSystem(t)
	s.manifest("mixed.yaml", fmt.Sprintf(mixed, backendPort))
	s.manifest("empty.yaml", serviceOf("empty", "NET.11", "TCP", 18081))
	s.manifest("taken.yaml", tcpService("zweb", "NET.10", 18080, "NET.101"))
	s.until("all are listed", func() error {
		if got := s.verb("service", "list"); strings.Count(got.out, "\n") != 4 || strings.Contains(got.out, "pending") {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	for _, tc := range []struct {
		words string
		code  int
		says  string // a regular expression for stdout, or for stderr if code is not 0
		not   string // on stdout
	}{
		{"service list", 0, `(?m)^ns/web:p/tcp4 +served +\S+s +2/3 +0 +cluster +- +cluster-ip \S+10:18080$`, "^$"},
		{"service list", 0, `(?m)^ns/empty:p/tcp4 +no endpoints +\S+s +0/0 `, "^$"},
		{"service list", 0, `(?m)^ns/zweb:p/tcp4 +conflict +\S+s `, "^$"},
		{"service list -n ns", 0, "ns/web", "^$"},
		{"service list -n other", 0, "^NAME.*\n$", "^$"},
		{"service list --problems", 0, "ns/empty", "ns/web"},
		{"service list " + s.net + "11", 0, "ns/empty", "ns/web"},
		{"service list emp", 0, "ns/empty", "ns/web"},
		{"service show ns/web", 0, `(?m)^slices +web-1, web-2$`, "^$"},
		{"service show ns/web", 0, `(?m)^ns/web:p/tcp4 is served for `, "^$"},
		{"service show ns/web", 0, `(?m)^cluster-ip \S+10:18080 +\S+101:\d+, \S+102:\d+ +-$`, "^$"},
		{"service show ns/web", 0, `(?m)102:\d+ +far +z9 +ready +used +it is on node far$`, "^$"},
		{"service show ns/web", 0, `(?m)103:\d+ +- +- +not ready +it is not ready +its node is not given$`, "^$"},
		{"service show ns/empty", 0, `(?m)^cluster-ip \S+11:18081 +nothing +-$`, "^$"},
		{"service show ns/zweb", 0, `(?m)^problem +.*ns/web`, "^$"},
		{"service show ns/zweb", 0, `(?m)^\S+T\S+ +warning +FrontendTaken +ns/zweb `, "^$"},
		{"service show ns/wbe", 1, `no Service ns/wbe; try: pointsman service list`, ""},
		{"service show web", 64, `want NAMESPACE/NAME`, ""},
		{"service show ns/web/p", 64, `want NAMESPACE/NAME`, ""},
		{"service list a b", 64, `--help`, ""},
		{"__complete service show ", 0, `(?m)^ns/web$`, "^$"},
		{"__complete service show ns/web ", 0, `^:4\n`, "ns/empty"},
		{"__complete mode swap ", 0, `^userspace\tserving\n:4\n`, "^$"},
		{"events", 0, `(?m)^\S+T\S+ +warning +FrontendTaken +ns/zweb `, "^$"},
		{"events --since 1h", 0, `FrontendTaken`, "^$"},
		{"events --since 1ns", 0, `^$`, "FrontendTaken"},
		{"events --since -1s", 64, `--since`, ""},
		{"events -f -o json", 64, `--follow`, ""},
	} {
		words := strings.Fields(tc.words)
		if words[0] == "__complete" {
			words = append([]string{"__complete", "--config", s.path("host.yaml")}, strings.Split(tc.words, " ")[1:]...)
		} else {
			words = append(words, "--config", s.path("host.yaml"))
		}
		got := s.run(words...)
		// On a busy node the host does not answer within the second that a shell waits for completions.
		for again := 0; again < 20 && words[0] == "__complete" && !regexp.MustCompile(tc.says).MatchString(got.out); again++ {
			got = s.run(words...)
		}
		text := got.out
		if tc.code != 0 {
			text = got.err
		}
		if got.code != tc.code || !regexp.MustCompile(tc.says).MatchString(text) || tc.not != "^$" && tc.not != "" && strings.Contains(got.out, tc.not) {
			t.Errorf("pointsman %s exits %d, want %d with %q, and says\n%s%s", tc.words, got.code, tc.code, tc.says, got.out, got.err)
		}
	}
	var detail admin.ServiceDetail
	if err := json.Unmarshal([]byte(s.verb("service", "show", "ns/web", "-o", "json").out), &detail); err != nil {
		t.Fatal(err)
	}
	if detail.Kind != "ServiceDetail" || len(detail.Ports) != 1 || len(detail.Ports[0].Endpoints) != 3 || detail.Ports[0].State != "served" || detail.Ports[0].Since.IsZero() {
		t.Errorf("%+v", detail)
	}
}

// TestFollowEvents follows events until it is interrupted.
func TestFollowEvents(t *testing.T) {
	t.Parallel()
	s := servingSystem(t)
	v := s.follows("events", "-f")
	v.prints("PluginServing")
	s.manifest("taken.yaml", tcpService("zweb", "NET.10", 18080, "NET.101"))
	v.prints("warning  FrontendTaken  ns/zweb")
	v.stop()
}

// TestWatchStatus watches the status until it is interrupted.
func TestWatchStatus(t *testing.T) {
	t.Parallel()
	s := servingSystem(t)
	v := s.follows("status", "--watch")
	v.prints("all        is well")
	v.prints("all        is well")
	v.stop()
}

// A following is a verb that prints until it is interrupted.
type following struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string // closed when the verb has closed its output
}

// follows starts a verb that ends by a signal.
func (s *system) follows(words ...string) *following {
	s.t.Helper()
	v := &following{s.t, exec.CommandContext(s.t.Context(), filepath.Join(binaries(s.t), "pointsman"), append(words, "--config", s.path("host.yaml"))...), make(chan string)}
	out, err := v.cmd.StdoutPipe()
	if err == nil {
		err = v.cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	go func() { // ends with the process, which ends with the test
		defer close(v.lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			select {
			case v.lines <- scan.Text():
			case <-s.t.Context().Done():
			}
		}
	}()
	return v
}

// prints waits for a line that contains what.
func (v *following) prints(what string) {
	v.t.Helper()
	late := time.After(long)
	var seen []string
	for {
		select {
		case line, on := <-v.lines:
			if strings.Contains(line, what) {
				return
			}
			if seen = append(seen, line); !on {
				v.t.Fatalf("the verb ended without printing %q:\n%s", what, strings.Join(seen, "\n"))
			}
		case <-late:
			v.t.Fatalf("never printed %q:\n%s", what, strings.Join(seen, "\n"))
		}
	}
}

// stop interrupts the verb, and checks that it exits with 0.
func (v *following) stop() {
	v.t.Helper()
	if err := v.cmd.Process.Signal(syscall.SIGINT); err != nil {
		v.t.Fatal(err)
	}
	for range v.lines { // until all is read: Wait closes the pipe
	}
	if err := v.cmd.Wait(); err != nil {
		v.t.Errorf("after SIGINT, the verb ended with %v", err)
	}
}
