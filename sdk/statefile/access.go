// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"fmt"
	"slices"
)

// This file says which users of Windows could change what is in a folder, by what its security
// descriptor says. What reads that is in edge_windows.go.

// An access says which users may do what to a folder, or a file.
type access struct {
	owner   string // a SID, as all users here
	all     bool   // there is no list at all: everyone may do anything
	entries []entry
}

// An entry allows a user, or a group, something.
type entry struct {
	user      string
	mask      uint32
	inherited bool // it is for what is made in the folder alone; a file has none
	strange   bool // of a kind that is not understood
}

// What an entry may allow, as far as it changes something.
const (
	addFile     = 0x2
	addFolder   = 0x4
	deleteChild = 0x40
	remove      = 0x10000
	writeDAC    = 0x40000
	writeOwner  = 0x80000
	genericAll  = 0x10000000
	genericSet  = 0x40000000

	changesWithin = addFile | addFolder | genericSet | changesPath
	changesPath   = deleteChild | remove | writeDAC | writeOwner | genericAll // and leads elsewhere
)

// SIDs that are the same on every machine.
const (
	system           = "S-1-5-18"
	administrators   = "S-1-5-32-544"
	creatorOwner     = "S-1-3-0" // in what is inherited: the user that makes a file, which only those that are trusted can
	ownerRights      = "S-1-3-4"
	trustedInstaller = "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464"
)

// guarded reports which users other than me, administrators and the system could change what is
// in the folder, if so. name makes a SID readable. Entries that deny are not counted: a folder
// that only they keep closed is refused.
func (a access) guarded(dir, me string, name func(string) string) error {
	return a.closed(dir, me, name, changesWithin, true)
}

// leads is guarded of a folder on the way there: what else is in it does not matter.
func (a access) leads(dir, me string, name func(string) string) error {
	return a.closed(dir, me, name, changesPath, false)
}

func (a access) closed(dir, me string, name func(string) string, changes uint32, within bool) error {
	trusted := []string{me, system, administrators, trustedInstaller}
	if !slices.Contains(trusted, a.owner) {
		return fmt.Errorf(`folder %s belongs to %s, who could change what is in it; try: icacls "%s" /setowner *%s, or use another`, dir, name(a.owner), dir, administrators)
	}
	if a.all {
		return fmt.Errorf(`folder %s has no access control list, so everyone could change what is in it; try: %s, or use another`, dir, closing(dir, me))
	}
	for _, e := range a.entries {
		switch {
		case e.inherited && !within, slices.Contains(trusted, e.user), e.user == ownerRights, e.inherited && e.user == creatorOwner:
		case e.strange:
			return fmt.Errorf(`folder %s has an access control entry for %s that is not understood; try: %s, or use another`, dir, name(e.user), closing(dir, me))
		case e.mask&changes == 0:
		case within:
			return fmt.Errorf(`folder %s may be written to by %s; try: %s, or use another`, dir, name(e.user), closing(dir, me))
		default:
			return fmt.Errorf(`what is in folder %s may be replaced by %s; try: icacls "%s" /inheritance:d, then icacls "%s" /remove:g *%s, or use a folder elsewhere`, dir, name(e.user), dir, dir, e.user)
		}
	}
	return nil
}

// closing is the command that closes dir to all others.
func closing(dir, me string) string {
	command := fmt.Sprintf(`icacls "%s" /inheritance:r /grant:r *%s:(OI)(CI)F *%s:(OI)(CI)F`, dir, system, administrators)
	if me != system && me != administrators {
		command += fmt.Sprintf(" *%s:(OI)(CI)F", me)
	}
	return command
}
