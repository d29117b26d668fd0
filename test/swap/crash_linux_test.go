// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestKernelPluginKilled kills the plugin under load, and then changes a Service. A mode that serves by rules fails no
// call.
func TestKernelPluginKilled(t *testing.T) {
	for _, mode := range []string{"iptables", "nftables"} {
		t.Run(mode, func(t *testing.T) { pluginKilled(t, mode) })
	}
}

func pluginKilled(t *testing.T, mode string) {
	n := newNode(t, mode)
	n.start()
	l := n.newLoad()
	var longest time.Duration
	for i := range 3 {
		before := n.plugin(mode)
		began := time.Now()
		n.kill(before)
		n.until("another process serves", n.servesWith(mode, before))
		n.until("it has confirmed everything", func() error {
			s, err := n.Status(t.Context())
			if err == nil && (s.Sync.Acked == 0 || s.Sync.Pending > 0) {
				err = fmt.Errorf("sync %+v", s.Sync)
			}
			return err
		})
		if i == 0 { // later restarts are delayed, as for a plugin that crashes again and again
			longest = time.Since(began)
		}
	}
	l.done("a plugin of " + mode + " killed three times")
	t.Logf("updates were served again after %s (goal: 500ms)", longest)
}

// TestKernelHung stops a plugin's process (SIGSTOP). The host detects that and replaces the process.
func TestKernelHung(t *testing.T) {
	for _, mode := range []string{"iptables", "nftables"} {
		t.Run(mode, func(t *testing.T) { hung(t, mode) })
	}
}

func hung(t *testing.T, mode string) {
	n := newNode(t, mode)
	n.start()
	l := n.newLoad()
	before := n.plugin(mode)
	began := time.Now()
	if err := syscall.Kill(before, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	n.until("it is found out", func() error {
		s, err := n.Status(t.Context())
		if err == nil && s.Dataplane.State == "serving" && s.Dataplane.PID == before {
			err = errors.New("it counts as serving")
		}
		return err
	})
	found := time.Since(began)
	n.until("another process serves", n.servesWith(mode, before))
	t.Logf("the stopped process was found after %s (goal: 5s), another one served after %s", found, time.Since(began))
	l.done("a plugin of " + mode + " that hangs")
}

// TestKernelCrashLoop installs a binary that ends at once. The rules keep serving, status shows why the binary fails,
// and the host starts it again and again until it is replaced.
func TestKernelCrashLoop(t *testing.T) {
	n := newNode(t, "iptables")
	n.needsLaunchedPlugins()
	n.start()
	l := n.newLoad()
	good := n.path("plugins/pointsman-dataplane-iptables")
	n.write("plugins/pointsman-dataplane-iptables", "#!/bin/sh\necho out of coal >&2\nexit 3\n")
	if err := os.Chmod(good, 0o755); err != nil {
		t.Fatal(err)
	}
	if pid := n.plugin("iptables"); pid == 0 || syscall.Kill(pid, syscall.SIGKILL) != nil {
		t.Fatal("no plugin to kill")
	}
	n.until("it has failed often, and waits", func() error {
		s, err := n.Status(t.Context())
		if d := s.Dataplane; err == nil && (d.Restarts < 6 || d.State != "waiting" || d.Next.IsZero() || !strings.Contains(d.Why, "out of coal")) {
			err = fmt.Errorf("%s after %d restarts, next %s: %s", d.State, d.Restarts, d.Next, d.Why)
		}
		return err
	})
	n.install()
	n.until("the good binary serves", n.servesWith("iptables", 0))
	l.done("a crash loop")
}

// foreignRules returns the rules of other programs.
func (n *node) foreignRules() string {
	n.Helper()
	out, err := exec.Command("iptables-save").Output()
	if err != nil {
		n.Fatal(err)
	}
	var kept []string
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "-A") && !strings.Contains(line, "KUBE-") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "") + n.foreignTables()
}

// TestKernelStorm swaps while endpoints constantly change.
func TestKernelStorm(t *testing.T) {
	for _, other := range []string{"userspace", "nftables"} {
		t.Run(other, func(t *testing.T) { inAStorm(t, other) })
	}
}

func inAStorm(t *testing.T, other string) {
	n := newNode(t, "iptables")
	n.start()
	l := n.newLoad()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond): // the pace of the changes
				n.write("services/storm.yaml", fmt.Sprintf(storm, i%200+1, i%250+1, i%250+2))
			}
		}
	}()
	for range 2 {
		n.swapTo(other)
		n.swapTo("iptables")
	}
	close(stop)
	<-stopped
	l.done("swaps in a storm of changes")
}

const storm = `
apiVersion: v1
kind: Service
metadata: {name: storm, namespace: shop}
spec: {clusterIP: 172.30.2.%d, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: storm-1, namespace: shop, labels: {kubernetes.io/service-name: storm}}
addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [10.180.3.%d]}, {addresses: [10.180.4.%d]}]
`
