// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// GroupSocket returns where the members of adminGroup reach the host whose own socket is at path:
// in a folder that they alone may enter.
func GroupSocket(path string) string {
	return filepath.Join(filepath.Dir(path), "group", filepath.Base(path))
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

// ServeGroup answers on l as Serve does, and refuses all that is no question.
func ServeGroup(ctx context.Context, l net.Listener, b Backend) error {
	return answer(ctx, l, asksOnly(handler(b)), b.Log)
}

// asksOnly passes on what only asks.
func asksOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Allow", "GET, HEAD")
		fail(w, &Error{Code: http.StatusMethodNotAllowed, What: r.Method + " " + r.URL.Path, Why: "members of adminGroup may ask, and not act", Try: "sudo pointsman"})
	})
}
