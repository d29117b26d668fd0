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

// listenAndServe serves whoever may connect to address, until a SIGTERM or a
// host's Shutdown. It is for a plugin that something other than a host starts: a
// container of its own, or systemd. Its log also goes to w.
func listenAndServe(s *server, address string, w io.Writer) error {
	listener, err := listen(address)
	if err != nil {
		return err
	}
	defer onSignals(s, os.Interrupt, syscall.SIGTERM)()
	go s.printLog(w)
	g := grpc.NewServer(serverOptions()...)
	s.register(g)
	go s.stopWhenEnded(g)
	return g.Serve(listener)
}

// listen opens a socket that only this user, and root, can connect to.
func listen(address string) (net.Listener, error) {
	path, err := socketPath(address)
	if err != nil {
		return nil, err
	}
	if err := private(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := vacate(path); err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	return &guarded{listener}, nil
}

// private makes dir for this user alone, or checks that it is.
func private(dir string) error {
	if err := os.Mkdir(dir, 0o700); err == nil || !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("directory %s is open to others (%s); try: chmod 0700 %s, or a directory of its own below it", dir, info.Mode().Perm(), dir)
	}
	return nil
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

// A guarded listener turns away who is neither this user nor root.
type guarded struct{ net.Listener }

func (g *guarded) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if trusted(conn, 0) == nil {
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
