// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const poisoned = `
apiVersion: v1
kind: Service
metadata: {name: poison, namespace: shop}
spec: {clusterIP: 172.30.0.66, ports: [{port: %d}]}
---
`

// TestPoison has a plugin that dies of one Service. It is found, set aside and named,
// the others are served, and it is tried again when it changes.
func TestPoison(t *testing.T) {
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
	n.start()
	n.write("services/poison.yaml", fmt.Sprintf(poisoned, 13))
	n.until("the poison is named", long, func() error {
		s, err := n.Status(t.Context())
		if err != nil {
			return err
		}
		if len(s.Unserved) != 1 || !strings.HasPrefix(s.Unserved[0].Service, "shop/poison") || s.Unserved[0].Reason != "keptAside" || s.Dataplane.Role != "active" {
			return fmt.Errorf("%s %s, unserved %+v", s.Dataplane.State, s.Dataplane.Why, s.Unserved)
		}
		return nil
	})
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
	n.write("services/poison.yaml", fmt.Sprintf(poisoned, 14))
	n.until("it is served when it is harmless", long, func() error {
		s, err := n.Status(t.Context())
		if err == nil && len(s.Unserved) > 0 {
			err = errors.New("it is not")
		}
		return err
	})
	events, err := n.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var named bool
	for _, e := range events.Items {
		named = named || e.Reason == "ServicePoison" && strings.HasPrefix(e.Object, "shop/poison")
	}
	if !named {
		t.Errorf("no event names it: %+v", events.Items)
	}
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
