// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"

	"github.com/pointsman/pointsman/internal/notify"
)

// A socket is where a plugin listens for hosts, and for which users'.
type socket struct {
	address string   // unix:///path
	users   []uint32 // whose hosts may connect, beside this user's and root's
}

// listenAndServe serves the hosts that may connect to that socket, until a SIGTERM or a
// host's Shutdown. It is for a plugin that something other than a host starts: a
// container of its own, or systemd. Its log is also written to w.
func listenAndServe(s *server, on socket, w io.Writer) error {
	listener, err := on.listen()
	if err != nil {
		return err
	}
	defer onSignals(s, os.Interrupt, syscall.SIGTERM)()
	go s.printLog(w)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // ends with the server
		if err := notify.Watch(ctx, func() bool { return true }); err != nil && ctx.Err() == nil {
			fmt.Fprintln(w, err)
		}
	}()
	g := grpc.NewServer(serverOptions()...)
	s.register(g)
	reflection.Register(g) // so that grpcurl and the like know the messages
	go s.stopWhenEnded(g)  // ends with the server
	return g.Serve(listener)
}

// listen opens the socket. Other users are kept out twice: the folder is open to this user
// alone, and where others are named to this process's group; and the kernel tells the user
// of each process that connects.
func (s socket) listen() (net.Listener, error) {
	path, err := socketPath(s.address)
	if err != nil {
		return nil, err
	}
	if err := s.folder(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := vacate(path); err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600|s.group()&0o060); err != nil {
		listener.Close()
		return nil, err
	}
	return &userListener{Listener: listener, users: s.users}, nil
}

// group returns what the group may do in the folder, and with the socket: nothing,
// unless other users are named.
func (s socket) group() os.FileMode {
	if len(s.users) == 0 {
		return 0
	}
	return 0o070
}

// folder makes the socket's folder, or checks the one that is there.
func (s socket) folder(dir string) error {
	mode := 0o700 | s.group()&0o050
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err == nil {
		return os.Chmod(dir, mode) // whatever the umask is
	} else if !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	switch has := info.Mode().Perm(); {
	case has&^mode != 0:
		return fmt.Errorf("directory %s is open to others (%s); try: chmod %#o %s, or a directory of its own below it", dir, has, mode, dir)
	case has&mode != mode:
		return fmt.Errorf("directory %s is closed to the users that are to connect (%s); try: chmod %#o %s", dir, has, mode, dir)
	}
	return owned(dir, info)
}

// vacate removes the socket of a process that has ended.
func vacate(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&os.ModeSocket == 0:
		return fmt.Errorf("%s is there and is no socket; remove it, or listen elsewhere", path)
	}
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		conn.Close()
		return fmt.Errorf("another process listens on %s already", path)
	}
	return os.Remove(path)
}

// A userListener refuses connections of users other than this one, root and users.
type userListener struct {
	net.Listener
	users []uint32
}

func (g *userListener) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if trusted(conn, g.users...) == nil {
			return conn, nil
		}
		conn.Close()
	}
}

// printLog writes the log to w until the server ends. Only it waits for w.
func (s *server) printLog(w io.Writer) {
	_ = s.follow(0, nil, func(lines []LogLine) error {
		for _, l := range lines {
			fmt.Fprintln(w, l)
		}
		return nil
	})
}

// aliveLimit is for an answer.
const aliveLimit = 3 * time.Second

// alive asks the plugin that listens at an address for its Hello, for what started that:
// a host that finds it hung may not end it, for it is no child of the host's. The kubelet
// asks by this verb; systemd expects a message in time.
func (c cli) alive(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return usageError(fmt.Sprintf("%s alive: want the address that it listens on: unix:///absolute/path", c.binary()))
	}
	at, err := At(args[0])
	if err != nil {
		return usageError(fmt.Sprintf("%s alive: %v", c.binary(), err))
	}
	ctx, cancel := context.WithTimeout(ctx, aliveLimit)
	defer cancel()
	remote, err := Attach(ctx, at)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "%s answers\n", remote.Hello())
	return remote.Close()
}
