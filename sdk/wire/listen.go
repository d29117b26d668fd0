// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"
)

// A door is where a plugin listens for hosts, and for whose.
type door struct {
	address string   // unix:///path
	users   []uint32 // whose hosts may come in, beside this user's and root's
}

// listenAndServe serves whoever may come in by d, until a SIGTERM or a host's
// Shutdown. It is for a plugin that something other than a host starts: a
// container of its own, or systemd. Its log also goes to w.
func listenAndServe(s *server, d door, w io.Writer) error {
	listener, err := d.listen()
	if err != nil {
		return err
	}
	defer onSignals(s, os.Interrupt, syscall.SIGTERM)()
	go s.printLog(w)
	go func() { // ends with the server
		if err := s.reassure(); err != nil {
			fmt.Fprintln(w, err)
		}
	}()
	g := grpc.NewServer(serverOptions()...)
	s.register(g)
	go s.stopWhenEnded(g) // ends with the server
	return g.Serve(listener)
}

// listen opens the socket. Who may come in is checked twice: the folder lets in
// this user, and where others are named this process's group; and of who connects
// the kernel tells the user.
func (d door) listen() (net.Listener, error) {
	path, err := socketPath(d.address)
	if err != nil {
		return nil, err
	}
	if err := d.folder(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := vacate(path); err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600|d.group()&0o060); err != nil {
		listener.Close()
		return nil, err
	}
	return &guarded{Listener: listener, users: d.users}, nil
}

// group is what the group may do in the folder, and with the socket: nothing,
// unless other users are named.
func (d door) group() os.FileMode {
	if len(d.users) == 0 {
		return 0
	}
	return 0o070
}

// folder makes the socket's folder, or checks the one that is there.
func (d door) folder(dir string) error {
	mode := 0o700 | d.group()&0o050
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
		return fmt.Errorf("directory %s is closed to those who are to come in (%s); try: chmod %#o %s", dir, has, mode, dir)
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

// A guarded listener turns away who is neither this user nor root, nor one of
// users.
type guarded struct {
	net.Listener
	users []uint32
}

func (g *guarded) Accept() (net.Conn, error) {
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
	reader := s.ring.reader(0)
	for {
		lines, more := reader.next(ringBatch)
		for _, l := range lines {
			fmt.Fprintln(w, l)
		}
		if len(lines) > 0 {
			continue
		}
		select {
		case <-more:
		case <-s.closing:
			return
		}
	}
}
