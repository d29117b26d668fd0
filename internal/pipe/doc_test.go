// SPDX-License-Identifier: Apache-2.0

package pipe

import "testing"

func TestIsPath(t *testing.T) {
	for path, want := range map[string]bool{
		`\\.\pipe\pointsman`:            true,
		`\\.\PIPE\pointsman\userspace`:  true, // names are case-insensitive
		`\\.\pipe\`:                     false,
		`\\elsewhere\pipe\pointsman`:    false, // on another machine
		`C:\pipe\pointsman`:             false,
		`/run/pointsman/pointsman.sock`: false,
	} {
		if got := IsPath(path); got != want {
			t.Errorf("IsPath(%q) is %v", path, got)
		}
	}
}
