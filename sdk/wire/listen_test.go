// SPDX-License-Identifier: Apache-2.0

//go:build unix

package wire

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/eventually"
)

// listening starts a plugin by hand, with --listen.
func listening(t *testing.T, address string) *exec.Cmd {
	t.Helper()
	return started(t, "serve", address, "--listen", address)
}

// started starts a part with these arguments, and waits for its socket.
func started(t *testing.T, name, address string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := part(name, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	reaped := make(chan struct{})
	go func() { cmd.Wait(); close(reaped) }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-reaped
	})
	path := strings.TrimPrefix(address, "unix://")
	eventually.True(t, "the socket takes connections", func() bool { // it is there before it does
		conn, err := net.Dial("unix", path)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return cmd
}

// A plugin that listens by itself is attached to by its address.
func TestAttach(t *testing.T) {
	dir := filepath.Join(shortDir(t), "own")
	address := "unix://" + filepath.Join(dir, "plugin.sock")
	cmd := listening(t, address)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v; want it private", info.Mode(), err)
	}
	target, err := At(address)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Attach(soon(t), target)
	if err != nil {
		t.Fatal(err)
	}
	configured(t, r, order{})
	if _, err := r.Sync(soon(t), full(1)); err != nil {
		t.Error(err)
	}
	if r.Hello().PID != cmd.Process.Pid {
		t.Errorf("it is process %d; want %d", r.Hello().PID, cmd.Process.Pid)
	}
	if err := r.Shutdown(soon(t)); err != nil {
		t.Error(err)
	}
	select {
	case <-r.Exited():
	case <-soon(t).Done():
		t.Error("its end was not seen")
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// A dataplane knows whether the host of its session is connected, whoever else is.
func TestGone(t *testing.T) {
	address := "unix://" + filepath.Join(shortDir(t), "own", "s")
	d := &setups{Dataplane: &subject{}}
	s := newServer(subjectDescription(), d)
	go func() { _ = listenAndServe(s, socket{address: address}, io.Discard) }() // ends with the server
	defer s.end()
	target, err := At(address)
	if err != nil {
		t.Fatal(err)
	}
	attach := func() (r *Remote) {
		eventually.True(t, "it listens", func() bool { r, err = Attach(soon(t), target); return err == nil })
		return r
	}
	gone := func() bool { return d.setup.Load().Gone() > 0 }

	first, probe := configured(t, attach(), order{}), attach()
	probe.Close()
	second := configured(t, attach(), order{})
	first.Close()
	s.session.disconnected(new(connection)) // the first host's, or the probe's
	if gone() {
		t.Error("the host of the session is connected")
	}
	probe = attach()
	defer probe.Close()
	second.Close()
	eventually.True(t, "it is seen that the host of the session is gone", gone)
	defer configured(t, attach(), order{}).Close()
	if gone() {
		t.Error("another host is connected")
	}
}

// setups remembers the last Setup.
type setups struct {
	sdk.Dataplane
	setup atomic.Pointer[sdk.Setup]
}

func (s *setups) Configure(ctx context.Context, setup sdk.Setup) (sdk.Description, error) {
	s.setup.Store(&setup)
	return s.Dataplane.Configure(ctx, setup)
}

// The end of a process that cannot be seen is that of the connection.
func TestAttachSeesTheConnectionEnd(t *testing.T) {
	address := "unix://" + filepath.Join(shortDir(t), "own", "plugin.sock")
	cmd := listening(t, address)
	target, err := At(address)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Attach(soon(t), target)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.Process.Kill()
	select {
	case <-r.Exited():
	case <-soon(t).Done():
		t.Fatal("the end was not seen")
	}
	if _, err := r.Vitals(soon(t)); err == nil || !strings.Contains(err.Error(), "connection to it was lost") {
		t.Errorf("Vitals: %v; want that the connection was lost", err)
	}
}

// Attaching negotiates nothing by itself, so the first call must.
func TestAttachToAnotherMajor(t *testing.T) {
	address := "unix://" + filepath.Join(shortDir(t), "own", "s")
	started(t, "listen-major-2", address, address)
	target, err := At(address)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Attach(soon(t), target)
	want := "speaks [2] of the wire's majors, and this host [1]"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v; want %q", err, want)
	}
}

func TestListenRefuses(t *testing.T) {
	open := shortDir(t)
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(shortDir(t), "own")
	first, err := socket{address: "unix://" + own + "/s"}.listen()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if err := os.WriteFile(own+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ address, want string }{
		{"unix://" + open + "/s", "has mode 0755"},
		{"unix://" + own + "/s", "listens on"},
		{"unix://" + own + "/file", "is no socket"},
		{"tcp://1.2.3.4", "want unix:///absolute/path"},
		{"unix://relative", "want unix:///absolute/path"},
		{"unix:///" + strings.Repeat("x", 200), "a socket's may have 107"},
	}
	for _, test := range tests {
		if l, err := (socket{address: test.address}).listen(); err == nil {
			l.Close()
			t.Errorf("listen on %s went well", test.address)
		} else if !strings.Contains(err.Error(), test.want) {
			t.Errorf("listen on %s: %v; want %q in it", test.address, err, test.want)
		}
	}
}

func TestListenReplacesADeadSocket(t *testing.T) {
	address := "unix://" + filepath.Join(shortDir(t), "own", "s")
	cmd := listening(t, address)
	cmd.Process.Kill()
	eventually.True(t, "the place of the dead one is free", func() bool {
		l, err := socket{address: address}.listen()
		if err == nil {
			l.Close()
		}
		return err == nil
	})
}

// Whatever listens at an address, Attach comes back with a reason.
func TestAttachToWhatIsNoPlugin(t *testing.T) {
	t.Parallel() // it mostly waits
	path := filepath.Join(shortDir(t), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, says := range []string{"", "HTTP/1.1 400 Bad Request\r\n\r\n"} {
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				conn.Write([]byte(says))
				defer conn.Close()
			}
		}()
		_, err := Attach(brief(t), Target{Network: "unix", Address: path})
		if err == nil || !strings.Contains(err.Error(), "ask the plugin what it is") {
			t.Errorf("says %q: %v; want that it does not answer", says, err)
		}
	}
}

// A launched plugin ends with its stdin, which its host holds open.
func TestAPluginEndsWithItsLifeline(t *testing.T) {
	lifeline, stderr := handshaken(t, "serve", "PLUGIN_PROTOCOL_VERSIONS=1")
	lifeline.Close()
	ended := make(chan struct{})
	go func() { // ends with the process, which is the last to have stderr open
		defer close(ended)
		_, _ = io.Copy(io.Discard, stderr)
	}()
	select {
	case <-ended:
	case <-soon(t).Done():
		t.Error("it still runs")
	}
}
