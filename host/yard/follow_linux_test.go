// SPDX-License-Identifier: Apache-2.0

package yard

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
	y := s.next()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { // ends with ctx
		defer close(ended)
		if err := y.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	defer func() { cancel(); <-ended }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(glance) {
		m := y.runner.Machine()
		if m.Plan.To == "iptables" || m.Last.Plan.To == "iptables" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the host stays with %s, which is %s, and the file says iptables", y.Mode(), y.Serving().State)
		}
	}
}

// TestFollowHearsTheLast has the file change, or somebody ask for a mode, before the first
// dataplane is up: what was asked for when the host began holds no more.
func TestFollowHearsTheLast(t *testing.T) {
	for name, change := range map[string]func(*Yard) error{
		"the file": func(y *Yard) error {
			return y.Reload(config.Change{Host: &config.Host{Mode: "userspace"}, Applied: []string{"mode"}})
		},
		"mode swap": func(y *Yard) error { return y.SwapTo("userspace", false) },
	} {
		t.Run(name, func(t *testing.T) {
			y := newSiding(t).next()
			if err := change(y); err != nil {
				t.Fatal(err)
			}
			y.begun()
			if y.owed == "iptables" {
				t.Error("the host goes back to the mode it began with")
			}
		})
	}
	y := newSiding(t).next()
	if y.begun(); y.owed != "iptables" {
		t.Errorf("nobody changed anything, and the host goes to %q, want iptables", y.owed)
	}
}
