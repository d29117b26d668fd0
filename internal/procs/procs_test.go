// SPDX-License-Identifier: Apache-2.0

package procs

import (
	"os"
	"runtime"
	"testing"
)

// TestOne: one processor but during All, however calls overlap, and as before in the end.
func TestOne(t *testing.T) {
	if _, set := os.LookupEnv("GOMAXPROCS"); set {
		t.Skip("GOMAXPROCS is set: unset it")
	}
	all := runtime.GOMAXPROCS(0)
	if all == 1 {
		t.Skip("needs more than one processor")
	}
	var undo, first, second func()
	for _, step := range []struct {
		what string
		do   func()
		want int
	}{
		{"All without One", func() { first = All() }, all},
		{"One during All", func() { undo = One() }, all},
		{"the end of All", func() { first() }, 1},
		{"All", func() { first = All() }, all},
		{"a second All", func() { second = All() }, all},
		{"the end of the first", func() { first() }, all},
		{"its end once more", func() { first() }, all},
		{"the end of the second", func() { second() }, 1},
		{"the end of One", func() { undo() }, all},
	} {
		step.do()
		if got := runtime.GOMAXPROCS(0); got != step.want {
			t.Errorf("%s: %d processors, want %d", step.what, got, step.want)
		}
	}
}

// TestOneLeavesGOMAXPROCS: what the environment asks for stays.
func TestOneLeavesGOMAXPROCS(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	t.Setenv("GOMAXPROCS", "3")
	defer One()()
	defer All()()
	if got := runtime.GOMAXPROCS(0); got != before {
		t.Errorf("%d processors, want %d", got, before)
	}
}
