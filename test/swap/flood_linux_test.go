// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// fewDescriptors is the number of descriptors that the host of TestKernelFlood may open.
const fewDescriptors = 128

// TestKernelFlood opens hundreds of silent or unfinished connections to a host that may open few descriptors. Probes,
// which have a listener of their own, are answered, the kernel serves, and a plugin that is killed is restarted and not
// blamed. The flooded interfaces answer again when the flood is over.
func TestKernelFlood(t *testing.T) {
	n := newNode(t, "iptables")
	n.needsLaunchedPlugins()
	n.write("host.yaml", strings.NewReplacer(
		`healthzBindAddress: ""`, "healthzBindAddress: 127.0.0.1:10256", `metricsBindAddress: ""`, "metricsBindAddress: 127.0.0.1:10249",
	).Replace(n.settings("iptables"))+"hostnameOverride: here\n")
	n.write("services/front.yaml", balanced)
	n.run(exec.Command("sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$@"`, fewDescriptors), "sh", n.path("pointsman"), "run", "--config", n.path("host.yaml")))
	n.expectAnswer(30999, "", "200", `"serviceProxyHealthy": true`)
	l := n.newLoad()
	end := n.flood("tcp:127.0.0.1:10249", "tcp:127.0.0.1:30999", "unix:"+n.path("admin.sock"))
	for round := range 3 {
		pid := n.plugin("iptables")
		n.kill(pid)
		n.until("the plugin is back", func() error {
			s, err := n.Status(t.Context())
			switch d := s.Dataplane; {
			case err != nil:
				return err
			case strings.Contains(d.Why, "too many open files"):
				t.Fatalf("the plugin is %s: %s", d.State, d.Why)
			case d.State != "serving" || d.PID == pid || d.Role != "active":
				return fmt.Errorf("the plugin is %s, pid %d: %s", d.State, d.PID, d.Why)
			}
			return nil
		})
		n.update(round)
		n.expectAnswer(10256, "healthz", "200", `"healthy":true`)
		if held := n.files(); held > fewDescriptors-30 {
			t.Errorf("the host holds %d descriptors of %d", held, fewDescriptors)
		}
	}
	end()
	n.expectAnswer(10249, "metrics", "200", "\npointsman_healthy 1\n", fmt.Sprintf("\nprocess_max_fds %d\n", fewDescriptors))
	n.expectAnswer(30999, "", "200", `"serviceProxyHealthy": true`)
	l.done("a flood")
	line := regexp.MustCompile(`^\d{4}-\d\d-\d\dT\S+ \[[A-Z]+\] `)
	for text := range strings.Lines(n.read("host.log")) {
		if !line.MatchString(text) && !strings.HasPrefix(text, "  ") {
			t.Errorf("the log has %q", text)
		}
	}
}

// flood keeps hundreds of connections to each address until end is called. Half of them send nothing, the others the
// beginning of a request.
func (n *node) flood(addrs ...string) (end func()) {
	n.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var callers sync.WaitGroup
	for _, to := range addrs {
		network, addr, _ := strings.Cut(to, ":")
		for i := range 150 {
			callers.Go(func() { // until the flood ends
				for ctx.Err() == nil {
					hang(ctx, network, addr, i%2 == 0)
				}
			})
		}
	}
	return func() { cancel(); callers.Wait() }
}

// hang connects, and waits until the other end closes the connection.
func hang(ctx context.Context, network, addr string, says bool) {
	limited, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(limited, network, addr)
	if err == nil {
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		if says {
			_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost:")
		}
		_, _ = io.Copy(io.Discard, conn)
	}
	select {
	case <-ctx.Done():
	case <-time.After(2 * time.Second): // the pace of a flood
	}
}
