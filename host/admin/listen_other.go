// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package admin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"
)

// Dial connects to a host's admin socket, until ctx ends.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", path)
}

// Listen makes the socket, which only the owner may open. A socket that a host
// left behind is replaced; one that a host answers on is not.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("listen on the admin socket: %w", err)
	}
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("listen on the admin socket %s: another host answers there; stop it, or set adminSocket and stateDir to others", path)
	}
	for _, left := range []string{path, path + ".new"} { // a host that was killed leaves either
		if err := vacate(left); err != nil {
			return nil, fmt.Errorf("listen on the admin socket %s: %w", path, err)
		}
	}
	l, err := listen(path, 0o600, -1)
	if err != nil {
		return nil, fmt.Errorf("listen on the admin socket: %w", err)
	}
	return l, nil
}

// listen makes a socket of that mode under another name, and then puts it in place. It is a
// group's, unless gid is negative.
func listen(path string, mode os.FileMode, gid int) (net.Listener, error) {
	l, err := net.Listen("unix", path+".new")
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err = errors.Join(give(path+".new", gid, mode), os.Rename(path+".new", path)); err != nil {
		_ = l.Close()
		return nil, err
	}
	return &socket{l, path}, nil
}

// vacate removes a socket on which nothing listens.
func vacate(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&os.ModeSocket == 0:
		return fmt.Errorf("there is something that is no socket at %s; move it away, or set adminSocket to another path", path)
	}
	return os.Remove(path)
}

// A socket is gone from the file system when it is closed.
type socket struct {
	net.Listener
	path string
}

func (s *socket) Close() error {
	_ = os.Remove(s.path)
	return s.Listener.Close()
}

// LookupGroup returns the id of a group of this machine, by its name or number.
func LookupGroup(name string) (int, error) {
	g, err := user.LookupGroup(name)
	if _, number := strconv.Atoi(name); err != nil && number == nil {
		g, err = user.LookupGroupId(name)
	}
	if err != nil {
		return 0, fmt.Errorf("this machine has no group %q; try: groupadd --system %s", name, name)
	}
	return strconv.Atoi(g.Gid)
}

// ListenGroup makes the socket of a group, and its folder. What stands there is replaced, so Listen
// must have found before that no other host has the socket at path. With no group, a negative gid,
// what a former host had there is removed, and there is no listener.
func ListenGroup(path string, gid int) (net.Listener, error) {
	socket := GroupSocket(path)
	dir := filepath.Dir(socket)
	if gid < 0 {
		return nil, errors.Join(vacate(socket), vacate(socket+".new"))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("listen for adminGroup: %w", err)
	}
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("listen for adminGroup: %s is no folder; move it away", dir)
	}
	for _, left := range []string{socket, socket + ".new"} {
		if err := vacate(left); err != nil {
			return nil, fmt.Errorf("listen for adminGroup on %s: %w", socket, err)
		}
	}
	l, err := listen(socket, 0o660, gid)
	if err == nil {
		err = give(dir, gid, 0o750)
	}
	if err == nil {
		return l, nil
	}
	if l != nil {
		_ = l.Close()
	}
	if errors.Is(err, os.ErrPermission) {
		err = fmt.Errorf("%w: this process may not give a file to group %d; run it with that as a supplementary group (SupplementaryGroups= of a systemd unit)", err, gid)
	}
	return nil, fmt.Errorf("listen for adminGroup: %w", err)
}

// give has a group own a file, in that mode; with a negative gid it is left to the group it has.
func give(path string, gid int, mode os.FileMode) error {
	if gid >= 0 {
		if err := os.Chown(path, -1, gid); err != nil {
			return err
		}
	}
	return os.Chmod(path, mode)
}
