// SPDX-License-Identifier: Apache-2.0

//go:build unix

package wire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/eventually"
)

// listening starts a plugin with --listen.
func listening(t *testing.T, address string) *exec.Cmd {
	t.Helper()
	return started(t, "serve", address, "--listen", address)
}

// started starts a part with these arguments, and waits until its socket accepts connections.
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
	eventually.True(t, "the socket accepts connections", func() bool {
		conn, err := net.Dial("unix", path)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return cmd
}

// attached returns a Remote of the plugin that listens at an address.
func attached(t *testing.T, address string) *Remote {
	t.Helper()
	target, err := At(address)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Attach(soon(t), target)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestAttach checks a session with a plugin that listens, and that tools can list its calls.
func TestAttach(t *testing.T) {
	address := "unix://" + filepath.Join(shortDir(t), "own", "plugin.sock")
	cmd := listening(t, address)
	r := attached(t, address)
	stream, err := reflectionpb.NewServerReflectionClient(r.conn).ServerReflectionInfo(soon(t))
	if err == nil {
		err = stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
	}
	if err != nil {
		t.Fatal(err)
	}
	reply, err := stream.Recv()
	if services := fmt.Sprint(reply); !strings.Contains(services, "pointsman.dataplane.v1.Dataplane") || !strings.Contains(services, "pointsman.hello.Hello") {
		t.Errorf("the plugin has the services %s, %v", services, err)
	}
	configured(t, r, order{})
	if _, err := r.Sync(soon(t), full(1)); err != nil {
		t.Error(err)
	}
	if answer, err := r.Preflight(soon(t), order{Refuse: true}.Options()); err != nil || !strings.Contains(string(answer), `"field": "options.refuse"`) {
		t.Errorf("preflight, which runs the verb check: %s, %v", answer, err)
	}
	if r.Hello().PID != cmd.Process.Pid {
		t.Errorf("the PID is %d; want %d", r.Hello().PID, cmd.Process.Pid)
	}
	if err := r.Shutdown(soon(t)); err != nil {
		t.Error(err)
	}
	select {
	case <-r.Exited():
	case <-soon(t).Done():
		t.Error("Exited is not closed")
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// TestGone checks Setup.Gone, which depends only on the connection of the session's host.
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
		eventually.True(t, "the plugin listens", func() bool { r, err = Attach(soon(t), target); return err == nil })
		return r
	}
	gone := func() bool { return d.setup.Load().Gone() > 0 }

	first, probe := configured(t, attach(), order{}), attach()
	probe.Close()
	second := configured(t, attach(), order{})
	first.Close()
	s.session.disconnected(new(connection)) // of another client
	if gone() {
		t.Error("Gone while the host of the session is connected")
	}
	probe = attach()
	defer probe.Close()
	second.Close()
	eventually.True(t, "Gone after the host of the session disconnected", gone)
	defer configured(t, attach(), order{}).Close()
	if gone() {
		t.Error("Gone while the next host is connected")
	}
}

// setups stores the last Setup.
type setups struct {
	sdk.Dataplane
	setup atomic.Pointer[sdk.Setup]
}

func (s *setups) Configure(ctx context.Context, setup sdk.Setup) (sdk.Description, error) {
	s.setup.Store(&setup)
	return s.Dataplane.Configure(ctx, setup)
}

// TestAttachSeesTheConnectionEnd checks that a process at an address counts as ended when the connection is lost.
func TestAttachSeesTheConnectionEnd(t *testing.T) {
	address := "unix://" + filepath.Join(shortDir(t), "own", "plugin.sock")
	cmd := listening(t, address)
	r := attached(t, address)
	defer r.Close()
	cmd.Process.Kill()
	select {
	case <-r.Exited():
	case <-soon(t).Done():
		t.Fatal("Exited is not closed")
	}
	if _, err := r.Vitals(soon(t)); err == nil || !strings.Contains(err.Error(), "connection to it was lost") {
		t.Errorf("Vitals: %v; want that the connection was lost", err)
	}
}

// TestAnotherMajor checks that Hello compares the majors.
func TestAnotherMajor(t *testing.T) {
	s := newServer(subjectDescription(), &subject{})
	s.hello.Majors = []uint32{2}
	_, err := callHello(soon(t), faking(t, func(g *grpc.Server) { s.register(g) }).conn)
	want := "speaks [2] of the wire's majors, and this host [1]; try: a plugin built with an sdk of the host's version"
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
	theirs := filepath.Join(shortDir(t), "theirs")
	const nobody = 65534
	if err := os.Mkdir(theirs, 0o700); err != nil {
		t.Fatal(err)
	}
	isRoot := os.Chown(theirs, nobody, nobody) == nil && os.Getuid() != nobody
	tests := []struct {
		address string
		users   []uint32
		want    string
	}{
		{"unix://" + open + "/s", nil, "has mode 0755"},
		{"unix://" + own + "/s", nil, "listens on"},
		{"unix://" + own + "/s", []uint32{nobody}, "try: chmod 0750"},
		{"unix://" + own + "/file", nil, "is no socket"},
		{"unix://" + theirs + "/s", nil, "belongs to user 65534"},
		{"tcp://1.2.3.4", nil, "want unix:///absolute/path"},
		{"unix://relative", nil, "want unix:///absolute/path"},
		{"unix:///" + strings.Repeat("x", 200), nil, "a socket's may have 107"},
	}
	for _, test := range tests {
		if strings.Contains(test.address, "theirs") && !isRoot {
			continue
		}
		if l, err := (socket{address: test.address, users: test.users}).listen(); err == nil {
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
	eventually.True(t, "the address is free", func() bool {
		l, err := socket{address: address}.listen()
		if err == nil {
			l.Close()
		}
		return err == nil
	})
}

// TestAttachToWhatIsNoPlugin checks that Attach returns an error for a silent server and for one of another protocol.
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
			t.Errorf("a server that says %q: %v; want an error of Hello", says, err)
		}
	}
}

// TestAPluginEndsWithItsLifeline launches a plugin as a host does, and closes its stdin.
func TestAPluginEndsWithItsLifeline(t *testing.T) {
	cmd := part("serve")
	cmd.Env = append(cmd.Env, cookieKey+"="+cookieValue, "PLUGIN_PROTOCOL_VERSIONS=1", "PLUGIN_UNIX_SOCKET_DIR="+shortDir(t))
	lifeline, err := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	if !strings.HasPrefix(line, fmt.Sprintf("1|%d|", Major)) {
		t.Errorf("the handshake is %q; want major %d", line, Major)
	}
	kill := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	lifeline.Close()
	if err := cmd.Wait(); !kill.Stop() {
		t.Errorf("the process did not end: %v", err)
	}
}
