// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/config"
)

// TestFollowLeavesWhatDoesNotComeUp has a host begin with the mode that served before, whose
// binary is broken by now, and go to the file's mode all the same.
func TestFollowLeavesWhatDoesNotComeUp(t *testing.T) {
	s := newSiding(t)
	s.write(inForceFile(s.host.StateDir), `{"serving":"userspace"}`)
	set := s.next()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { // ends with ctx
		defer close(ended)
		if err := set.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	defer func() { cancel(); <-ended }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(glance) {
		m := set.runner.Machine()
		if m.Plan.To == "iptables" || m.Last.Plan.To == "iptables" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the host stays with %s, which is %s, and the file says iptables", set.Mode(), set.Serving().State)
		}
	}
}

// TestFollowHearsTheLast has the file change, or somebody ask for a mode, before the first
// dataplane is up: what was asked for when the host began holds no more.
func TestFollowHearsTheLast(t *testing.T) {
	for name, change := range map[string]func(*Set) error{
		"the file": func(set *Set) error {
			return set.Reload(config.Change{Host: &config.Host{Mode: "userspace"}, Applied: []string{"mode"}})
		},
		"mode swap": func(set *Set) error { return set.SwapTo("userspace", false) },
	} {
		t.Run(name, func(t *testing.T) {
			set := newSiding(t).next()
			if err := change(set); err != nil {
				t.Fatal(err)
			}
			set.begun()
			if set.owed == "iptables" {
				t.Error("the host goes back to the mode it began with")
			}
		})
	}
	set := newSiding(t).next()
	if set.begun(); set.owed != "iptables" {
		t.Errorf("nobody changed anything, and the host goes to %q, want iptables", set.owed)
	}
}
