// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
)

// answering serves b on an admin socket until the test ends, and returns the path of the socket.
func answering(t *testing.T, b admin.Backend) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "admin.sock")
	l, err := admin.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- admin.Serve(ctx, l, b) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return socket
}

// TestUntilWell waits until a node is well and stays well, and reports changes meanwhile.
func TestUntilWell(t *testing.T) {
	warned := func(codes ...string) admin.Status {
		s := well()
		for _, code := range codes {
			s.Warnings = append(s.Warnings, admin.Warning{Code: code, Text: "since " + time.Now().String()})
		}
		s.Healthy = len(codes) == 0
		return s
	}
	pending := warned()
	pending.Sync.Pending = 3
	for name, c := range map[string]struct {
		answers []admin.Status // the last one repeats; nil if no host runs
		limit   time.Duration
		states  string // prefixes of the reported states
		healthy bool
		away    bool
	}{
		"well at once":             {[]admin.Status{warned()}, 0, "well", true, false},
		"well in the end":          {[]admin.Status{warned("W001"), warned("W001"), warned("W001", "W003"), pending, pending, warned()}, time.Minute, "not well: W001 since|not well: W001 since|well, but|well", true, false},
		"not well for long":        {[]admin.Status{warned(), warned("W004"), warned("W004"), warned()}, time.Minute, "well|not well: W004|well", true, false},
		"well, and changes come":   {[]admin.Status{warned(), pending, pending}, 0, "well", true, false},
		"not well within the time": {[]admin.Status{warned("W001")}, 250 * time.Millisecond, "not well: W001", false, false},
		"no host":                  {nil, 250 * time.Millisecond, "no host answers", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			socket, asked := "/none/at/all", 0
			if c.answers != nil {
				socket = answering(t, admin.Backend{Status: func() admin.Status {
					asked++
					return c.answers[min(asked, len(c.answers))-1]
				}})
			}
			var said []string
			s, err := waitUntilWell(t.Context(), admin.NewClient(socket), c.limit, 150*time.Millisecond, func(state string) { said = append(said, state) })
			if errors.Is(err, admin.ErrUnreachable) != c.away || s.Healthy != c.healthy {
				t.Errorf("it ends with %+v, %v", s, err)
			}
			if !slices.EqualFunc(said, strings.Split(c.states, "|"), strings.HasPrefix) {
				t.Errorf("reported %q, want %q", said, c.states)
			}
		})
	}
}
