// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

const deadly = `
apiVersion: v1
kind: Service
metadata: {name: deadly, namespace: shop}
spec: {clusterIP: 172.30.0.66, ports: [{port: %d}]}
---
`

// TestQuarantine has a plugin that crashes on one Service. It is found, quarantined and named,
// the others are served, and it is tried again when it changes.
func TestQuarantine(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs go: it builds a plugin")
	}
	n := bareNode(t, "fragile")
	build := exec.Command("go", "build", "-o", n.path("plugins/pointsman-dataplane-fragile"), "./testdata/fragile")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var others strings.Builder
	for i := range 20 {
		fmt.Fprintf(&others, "apiVersion: v1\nkind: Service\nmetadata: {name: s%d, namespace: shop}\nspec: {clusterIP: 172.30.1.%d, ports: [{port: 80}]}\n---\n", i, i+1)
	}
	n.write("services/others.yaml", others.String())
	at := freeAddr(t)
	n.write("host.yaml", strings.Replace(n.settings("fragile"), `metricsBindAddress: ""`, "metricsBindAddress: "+at, 1))
	n.start()
	n.write("services/deadly.yaml", fmt.Sprintf(deadly, 13))
	n.until("the Service is named", long, func() error {
		s, err := n.Status(t.Context())
		if err != nil {
			return err
		}
		if len(s.Unserved) != 1 || !strings.HasPrefix(s.Unserved[0].Service, "shop/deadly") || s.Unserved[0].Reason != "quarantined" || s.Dataplane.Role != "active" {
			return fmt.Errorf("%s %s, unserved %+v", s.Dataplane.State, s.Dataplane.Why, s.Unserved)
		}
		return nil
	})
	const quarantined = `pointsman_unserved{plugin="fragile",why="quarantined"} `
	for _, line := range []string{quarantined + "1", `pointsman_events_total{reason="ServiceQuarantined"} 1`} {
		n.until("the metrics say "+line, 60*time.Second, func() error { // once it is sure which it is
			if text := metrics(t, at); !strings.Contains(text, "\n"+line+"\n") {
				return errors.New(text)
			}
			return nil
		})
	}
	before, err := n.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n.write("services/web.yaml", manifest)
	n.until("another Service is served", long, func() error {
		s, err := n.Status(t.Context())
		if err == nil && (s.Sync.Acked <= before.Sync.Acked || s.Sync.Pending > 0) {
			err = fmt.Errorf("sync %+v", s.Sync)
		}
		return err
	})
	if s, err := n.Status(t.Context()); err != nil || s.Dataplane.Restarts != before.Dataplane.Restarts {
		t.Errorf("it was started %d times again: %v", s.Dataplane.Restarts-before.Dataplane.Restarts, err)
	}
	n.write("services/deadly.yaml", fmt.Sprintf(deadly, 14))
	n.until("it is served when it is harmless", long, func() error {
		s, err := n.Status(t.Context())
		if err == nil && len(s.Unserved) > 0 {
			err = errors.New("it is not")
		}
		return err
	})
	n.until("the metrics have it in quarantine no more", 30*time.Second, func() error {
		if text := metrics(t, at); !strings.Contains(text, quarantined+"0") {
			return errors.New(text)
		}
		return nil
	})
	events, err := n.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var named bool
	for _, e := range events.Items {
		named = named || e.Reason == "ServiceQuarantined" && strings.HasPrefix(e.Object, "shop/deadly")
	}
	if !named {
		t.Errorf("no event names it: %+v", events.Items)
	}
}

// freeAddr is one of this machine's where nothing listens.
func freeAddr(t *testing.T) string {
	t.Helper()
	if lo, err := netlink.LinkByName("lo"); err == nil {
		_ = netlink.LinkSetUp(lo) // in a new namespace; without root it is the machine's, and up
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// metrics are a host's, as text.
func metrics(t *testing.T, at string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
	answer, err := client.Get("http://" + at + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// bareNode is a host without a namespace of its own, and without callers.
func bareNode(t *testing.T, mode string) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "swap")
	if err != nil {
		t.Fatal(err)
	}
	n := newClient(t, dir)
	t.Cleanup(n.close)
	n.install()
	if err := os.MkdirAll(n.path("services"), 0o755); err != nil {
		t.Fatal(err)
	}
	n.mode(mode)
	return n
}
