// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/intent"
	"github.com/pointsman/pointsman/test/eventually"
)

// TestFollowLeavesWhatDoesNotComeUp has a host begin with the mode that served before, whose
// binary is broken by now, and go to the file's mode all the same.
func TestFollowLeavesWhatDoesNotComeUp(t *testing.T) {
	s := newFormerHost(t)
	s.write(modeFile(s.host), `{"serving":"userspace"}`)
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
	eventually.Succeeds(t, "the host goes to iptables, as the file says", func() error {
		if m := set.runner.Machine(); m.Plan.To != "iptables" && m.Last.Plan.To != "iptables" {
			return fmt.Errorf("it stays with %s, which is %s", set.Mode(), set.Serving().State)
		}
		return nil
	})
}

// TestFollowHearsTheLast has the file change, or a mode be asked for, before the first
// dataplane is up: what was wanted when the host began holds no more.
func TestFollowHearsTheLast(t *testing.T) {
	for name, change := range map[string]func(*Set) error{
		"nothing": func(*Set) error { return nil },
		"the file": func(set *Set) error {
			return set.Reload(config.Change{Host: &config.Host{Mode: "userspace"}, Applied: []string{"mode"}})
		},
		"mode swap": func(set *Set) error { return set.SwapTo("userspace", false) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newFormerHost(t)
			s.write(modeFile(s.host), `{"serving":"userspace"}`)
			set := s.next()
			if err := change(set); err != nil {
				t.Fatal(err)
			}
			v := intent.View{Mode: "userspace", Available: map[string]bool{"iptables": true}}
			_, do := set.intent.Intent().Next(v, time.Now())
			if swaps := do.Mode == "iptables"; swaps != (name == "nothing") {
				t.Errorf("the host does %+v", do)
			}
		})
	}
}
