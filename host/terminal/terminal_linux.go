// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

func is(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func size(f *os.File) (columns, rows int) {
	window, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(window.Col), int(window.Row)
}

// single has the terminal hand out each key as it is typed, and show none (termios(3)).
func single(f *os.File) (restore func(), ok bool) {
	fd := int(f.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, false
	}
	now := *before
	now.Lflag &^= unix.ICANON | unix.ECHO
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 1, 0
	if unix.IoctlSetTermios(fd, unix.TCSETS, &now) != nil {
		return nil, false
	}
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, before) }, true // a terminal that is gone needs nothing
}
