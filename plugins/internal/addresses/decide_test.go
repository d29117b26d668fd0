// SPDX-License-Identifier: Apache-2.0

package addresses

import "testing"

func TestDecide(t *testing.T) {
	ours, pending := &note{Created: 7}, &note{}
	made, other := &Address{Created: 7, Alone: true, NoSource: true}, &Address{Created: 8, Alone: true, NoSource: true}
	byNetsh := &Address{Created: 8, Alone: true}
	for _, c := range []struct {
		what   string
		note   *note
		there  *Address
		wanted bool
		want   action
	}{
		{"nothing is there", nil, nil, true, add},
		{"it was removed under us", ours, nil, true, add},
		{"a process was killed before it was added", pending, nil, true, add},
		{"it is ours", ours, made, true, keep},
		{"a process was killed after it was added", pending, made, true, keep},
		{"another program has it", nil, made, true, use},
		{"another program added it in place of ours", ours, other, true, use},
		{"another program added it before a process that was killed did", pending, byNetsh, true, use},
		{"ours is not wanted", ours, made, false, remove},
		{"what a killed process added is not wanted", pending, made, false, remove},
		{"what another program added in place of ours is not wanted", ours, other, false, forget},
		{"what another program added first is not wanted", pending, byNetsh, false, forget},
		{"ours is gone", ours, nil, false, forget},
		{"another program's is not wanted", nil, made, false, leave},
		{"nothing", nil, nil, false, leave},
	} {
		if got := decide(c.note, c.there, c.wanted); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}
