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
	"path/filepath"
	"time"
)

// Dial connects to a host's admin socket.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", path)
}

// Listen creates the socket with access for the owner only. It replaces a socket that a killed
// host left, but not a socket on which a host answers.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("listen on the admin socket: %w", err)
	}
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("listen on the admin socket %s: another host answers there; stop it, or set adminSocket and stateDir to others", path)
	}
	for _, left := range []string{path, path + ".new"} { // a killed host may leave either
		if err := vacate(left); err != nil {
			return nil, fmt.Errorf("listen on the admin socket %s: %w", path, err)
		}
	}
	l, err := net.Listen("unix", path+".new") // renamed to path after the permissions are set
	if err != nil {
		return nil, fmt.Errorf("listen on the admin socket: %w", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err = errors.Join(os.Chmod(path+".new", 0o600), os.Rename(path+".new", path)); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("listen on the admin socket: %w", err)
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
		return fmt.Errorf("%s exists and is not a socket; move it away, or set adminSocket to another path", path)
	}
	return os.Remove(path)
}

// A socket is a listener that removes its file when closed.
type socket struct {
	net.Listener
	path string
}

func (s *socket) Close() error {
	_ = os.Remove(s.path)
	return s.Listener.Close()
}
