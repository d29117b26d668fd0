// SPDX-License-Identifier: Apache-2.0

//go:build unix

package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// addressForm shows the form of an address for --listen, for messages.
const addressForm = "unix:///absolute/path"

func at(address string) (Target, error) {
	path, ok := strings.CutPrefix(address, "unix://")
	switch {
	case !ok || !filepath.IsAbs(path):
		return Target{}, fmt.Errorf("address %q: want unix:///absolute/path", address)
	case len(path) > MaxSocketPath:
		return Target{}, fmt.Errorf("address %q: the path has %d bytes, and a socket's may have %d", address, len(path), MaxSocketPath)
	}
	return Target{Network: overUnix, Address: path}, nil
}

// open connects to the target.
func (t Target) open(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, t.Network, t.Address)
}

// listen creates the socket. Other users are kept out twice: the folder is accessible to this
// user only, or to this process's group if users are named; and the kernel reports the user of
// each process that connects.
func (s socket) listen() (net.Listener, error) {
	target, err := at(s.address)
	if err != nil {
		return nil, err
	}
	path, folder, mode := target.Address, os.FileMode(0o700), os.FileMode(0o600)
	if len(s.users) > 0 { // they must be in the folder's group
		folder, mode = 0o750, 0o660
	}
	if err := makeFolder(filepath.Dir(path), folder); err != nil {
		return nil, err
	}
	if err := vacate(path); err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, mode); err != nil {
		listener.Close()
		return nil, err
	}
	return &userListener{Listener: listener, users: s.users}, nil
}

// makeFolder creates the socket's folder, or checks an existing one.
func makeFolder(dir string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err == nil {
		return os.Chmod(dir, mode) // regardless of the umask
	} else if !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if has := info.Mode().Perm(); has != mode {
		return fmt.Errorf("directory %s has mode %#o, and a socket for these users needs %#o; try: chmod %#[3]o %[1]s, or a directory of its own below it", dir, has, mode)
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok && s.Uid != 0 && s.Uid != uint32(os.Geteuid()) { // its owner may change its content
		return fmt.Errorf("directory %s belongs to user %d, who could put another socket there; use one of user %d or root", dir, s.Uid, os.Geteuid())
	}
	return nil
}

// vacate removes the socket that an ended process left.
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
		if checkTrusted(conn, g.users...) == nil {
			return conn, nil
		}
		conn.Close()
	}
}
