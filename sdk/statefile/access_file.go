// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"fmt"
	"slices"
	"strings"
)

// This file says which users of Windows could change a file that is executed, though they could not
// change the program that executes it. What reads that is in file_windows.go.

// A guard is the users that may change a program, and the folders that lead to it.
type guard struct {
	users []string // SIDs
	all   bool     // everyone may: it has no access control list
	dirs  []string
}

// newGuard is that of a program with this access, which me executes.
func newGuard(program access, me string, dirs []string) guard {
	g := guard{users: []string{me, system, administrators, trustedInstaller}, dirs: dirs}
	if program.owner == "" {
		return g // nothing is known of it
	}
	g.users, g.all = append(g.users, program.owner), program.all
	for _, e := range program.entries {
		if !e.inherited && !e.strange && e.mask&changesWithin != 0 {
			g.users = append(g.users, e.user)
		}
	}
	return g
}

// passes reports whether a user that may change folder dir may change the program too. Windows tells
// no upper case from lower case.
func (g guard) passes(dir string) bool {
	return g.all || slices.ContainsFunc(g.dirs, func(d string) bool { return strings.EqualFold(d, dir) })
}

// A place is a file, the folder it lies in, or one that leads there.
type place struct {
	what, path string
	changes    uint32 // what counts as a change
}

// places lists a file and what leads to it, given the folders, the file's own first. A user that may add
// a file to that one may put a library there, which Windows loads before its own.
func places(file string, dirs []string) []place {
	all := []place{{"file", file, changesWithin}}
	for i, dir := range dirs {
		changes := uint32(changesPath)
		if i == 0 {
			changes = changesWithin
		}
		all = append(all, place{"folder", dir, changes})
	}
	return all
}

// guards reports which users could make a change at p, whose access a is, though they could not
// change the program, if so. name makes a SID readable. As in closed, entries that deny are not counted.
func (g guard) guards(p place, a access, name func(string) string) error {
	if g.all {
		return nil
	}
	if !slices.Contains(g.users, a.owner) {
		return fmt.Errorf(`%s %s belongs to %s, which could put another program there; try: icacls "%s" /setowner *%s`, p.what, p.path, name(a.owner), p.path, administrators)
	}
	if a.all {
		return fmt.Errorf(`%s %s has no access control list, so everyone could put another program there; try: icacls "%s" /reset`, p.what, p.path, p.path)
	}
	for _, e := range a.entries {
		switch {
		case e.inherited, slices.Contains(g.users, e.user), e.user == ownerRights:
		case e.strange:
			return fmt.Errorf(`%s %s has an access control entry for %s that is not understood; try: icacls "%s" /reset`, p.what, p.path, name(e.user), p.path)
		case e.mask&p.changes != 0:
			return fmt.Errorf(`%s %s may be changed by %s, which could put another program there; try: icacls "%s" /inheritance:d, then icacls "%s" /remove:g *%s`,
				p.what, p.path, name(e.user), p.path, p.path, e.user)
		}
	}
	return nil
}
