// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package terminal

import "os"

// is takes every character device for a terminal, as most are.
func is(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func size(*os.File) (columns, rows int) { return 0, 0 }

func single(*os.File) (restore func(), ok bool) { return nil, false }
