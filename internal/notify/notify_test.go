// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// manager listens as the service manager, and returns a function that returns its next message.
func manager(t *testing.T) (next func() string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: path})
	if err != nil {
		t.Skipf("needs datagram sockets: %v", err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return func() string {
		t.Helper()
		buf := make([]byte, 100)
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
}

func TestNotify(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if err := Notify(Ready); err != nil {
		t.Errorf("without a service manager: %v", err)
	}
	next := manager(t)
	if err := Notify(Ready); err != nil {
		t.Fatal(err)
	}
	if got := next(); got != "READY=1" {
		t.Errorf("got %q", got)
	}
}

func TestWatch(t *testing.T) {
	next := manager(t)
	t.Setenv("WATCHDOG_USEC", "2000")
	t.Setenv("WATCHDOG_PID", "")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	calls := 0
	go func() { ended <- Watch(ctx, func() bool { calls++; return calls != 2 }) }()
	for range 3 {
		if got := next(); got != "WATCHDOG=1" {
			t.Errorf("got %q", got)
		}
	}
	cancel()
	if err := <-ended; err != context.Canceled || calls < 4 {
		t.Errorf("well was called %d times: %v", calls, err)
	}
}

func TestWatchPeriod(t *testing.T) {
	for _, test := range []struct {
		usec, pid string
		want      time.Duration
		asked     bool
		bad       bool
	}{
		{"", "", 0, false, false},
		{"30000000", "", 15 * time.Second, true, false},
		{"30000000", "7", 15 * time.Second, true, false},
		{"30000000", "8", 0, false, false},
		{"soon", "", 0, false, true},
		{"-5", "", 0, false, true},
	} {
		got, asked, err := watchPeriod(test.usec, test.pid, 7)
		if got != test.want || asked != test.asked || (err != nil) != test.bad {
			t.Errorf("%q for %q: %s, %v, %v", test.usec, test.pid, got, asked, err)
		}
	}
}
