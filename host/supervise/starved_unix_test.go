// SPDX-License-Identifier: Apache-2.0

//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
)

// TestIsStarved: what is short here, and what is another program's to answer for.
func TestIsStarved(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("too many open files"), false}, // a plugin's own words
		{fmt.Errorf("launch: %w", &os.PathError{Op: "open", Path: "/x", Err: syscall.EMFILE}), true},
		{syscall.ENFILE, true},
		{syscall.ENOMEM, true},
		{&os.PathError{Op: "fork/exec", Path: "/x", Err: syscall.EAGAIN}, true},
		{&os.PathError{Op: "read", Path: "/x", Err: syscall.EAGAIN}, false},
		{syscall.ECONNREFUSED, false},
		{&os.PathError{Op: "open", Path: "/x", Err: syscall.ENOENT}, false},
	} {
		if got := IsStarved(c.err); got != c.want {
			t.Errorf("%v: %t", c.err, got)
		}
	}
}
