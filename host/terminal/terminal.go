// SPDX-License-Identifier: Apache-2.0

// Package terminal is what a verb knows of the place where it prints. A person at a terminal gets
// colours and a screen that is drawn again; a file or another program gets text alone.
package terminal

import (
	"io"
	"os"
)

// Is reports whether w is a terminal.
func Is(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && is(f)
}

// Colours reports whether what is written to w may have colours: it is a terminal that has them,
// and the user does not refuse them by NO_COLOR (https://no-color.org).
func Colours(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && Is(w)
}

// Size returns how many columns and rows the terminal w has now. Where that is not known, they are
// those that terminals began with.
func Size(w io.Writer) (columns, rows int) {
	if f, ok := w.(*os.File); ok {
		if columns, rows = size(f); columns > 0 && rows > 0 {
			return columns, rows
		}
	}
	return 80, 24
}

// Keys returns what is typed at the terminal r, key by key and without showing it, until restore
// puts the terminal back as it was. Ctrl-C still interrupts. The channel of something that is no
// terminal stays empty. One goroutine reads r, and goes on until the next key, or the end of r.
func Keys(r *os.File) (keys <-chan byte, restore func()) {
	typed := make(chan byte)
	before, ok := single(r)
	if !ok {
		return typed, func() {}
	}
	over := make(chan struct{})
	go func() { // ends with the first key after restore, or with r
		for key := make([]byte, 1); ; {
			if n, err := r.Read(key); n == 0 || err != nil {
				return
			}
			select {
			case typed <- key[0]:
			case <-over:
				return
			}
		}
	}()
	return typed, func() { close(over); before() }
}
