// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestExclusive: one of two runs on a machine has the loopback testbed, and the other waits until
// its context ends.
func TestExclusive(t *testing.T) {
	s := Subject{Testbed: Loopback()}
	done, err := s.exclusive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	brief, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.exclusive(brief); err == nil || !strings.Contains(err.Error(), "no other run") {
		t.Errorf("the second run got the testbed beside the first, or its error does not say why it waited: %v", err)
	}
	second := make(chan error, 1)
	go func() { // ends when the first is done
		done, err := s.exclusive(t.Context())
		if err == nil {
			done()
		}
		second <- err
	}()
	done()
	if err := <-second; err != nil {
		t.Error(err)
	}
	if _, err := (Subject{Testbed: said{}}).exclusive(t.Context()); err != nil {
		t.Errorf("another testbed than Loopback: %v", err)
	}
}

// TestConcurrentRuns: two runs of the suite do not use the same addresses at the same time.
func TestConcurrentRuns(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs all of 127.0.0.0/8 on the loopback interface")
	}
	failed := make(chan error, 2)
	for range 2 {
		go func() { failed <- somePackets(t.Context()) }() // ends with its checks
	}
	for range 2 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}

// somePackets runs a few scenarios on the loopback testbed.
func somePackets(ctx context.Context) error {
	s := InProcess(relayDescription, newRelay)
	s.Testbed = Loopback()
	for _, check := range scenarioChecks("C02/scenario/", true)[:8] {
		if f := check.find(ctx, s); f.Status == Fail {
			return errors.New(f.String())
		}
	}
	return nil
}

// TestWildcard: a program that listens on all addresses of the machine, on a common port, does not
// disturb the testbed.
func TestWildcard(t *testing.T) {
	l, err := net.Listen("tcp", ":8080")
	if err == nil { // otherwise another process has it, which is as good
		defer l.Close()
	}
	placed, _ := Loopback().Place(mustRead(t, "cluster-ip"))
	stage, err := Loopback().Open(t.Context(), nil, placed)
	if err != nil {
		t.Fatal(err)
	}
	if err := stage.Close(); err != nil {
		t.Error(err)
	}
}
