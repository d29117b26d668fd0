// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestTrial watches a real host as a rollout does: while it is well, from when its dataplane is
// killed again and again, and once that has gone on for so long that changes are late.
func TestTrial(t *testing.T) {
	t.Parallel()
	s := answering(t, "")
	backend(t, at(s.net+"101"))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	s.start()
	s.served("tcp", s.net+"10:18080")
	words := func(more ...string) []string {
		return append([]string{"trial", "--metrics", s.net + "1:10249"}, more...)
	}
	connect := "--connect=" + s.net + "10:18080"
	if got := s.run(words("--for=2s", connect)...); got.code != 0 || !strings.Contains(got.out, "this node was well for 2s: 0 of ") {
		t.Errorf("of a host that is well it says %+v", got)
	}
	if got := s.run(words("--for=2s", "--connect=web:80")...); got.code != 64 || !strings.Contains(got.err, "--connect web:80: want ADDRESS:PORT") {
		t.Errorf("of a name it says %+v", got)
	}

	ended := make(chan said, 1)
	go func() { ended <- s.run(words("--for=10m", "--grace=2s", connect)...) }() // ends when connections fail
	before := s.relayed()
	s.until("the trial connects", func() error {
		if now := s.relayed(); now == before {
			return fmt.Errorf("%s connections, as before", now)
		}
		return nil
	})
	stop := s.killing()
	defer stop()
	if got := <-ended; got.code != 1 || !strings.Contains(got.err, "this node is not well: ") {
		t.Errorf("of a dataplane that is killed it says %+v", got)
	}
	s.manifest("more.yaml", tcpService("more", "NET.11", 18080, "NET.101"))
	s.hears(10249, "metrics", "\npointsman_healthy 0\n")
	if got := s.run(words("--begin=1s")...); got.code != 1 || !strings.Contains(got.err, "it was not well within 1s: pointsman_healthy is 0") {
		t.Errorf("of a host that is late it says %+v", got)
	}
}

// relayed is how many connections the dataplane has carried, as the metrics have it.
func (s *system) relayed() string {
	_, rest, _ := strings.Cut(s.get(10249, "metrics"), "\npointsman_userspace_connections_total ")
	count, _, _ := strings.Cut(rest, "\n")
	return count
}

// killing kills the dataplane's process whenever there is one, until stop is called.
func (s *system) killing() (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with end
		defer close(ended)
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			if st, err := s.Status(s.t.Context()); err == nil && st.Dataplane.PID != 0 {
				_ = syscall.Kill(st.Dataplane.PID, syscall.SIGKILL) // it may be gone by now
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}
