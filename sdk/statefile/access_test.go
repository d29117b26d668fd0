// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"strings"
	"testing"
)

func TestAccess(t *testing.T) {
	const me, bob, users, everyone = "S-1-5-21-1-2-3-1001", "S-1-5-21-1-2-3-1002", "S-1-5-32-545", "S-1-1-0"
	const full, read, modify = 0x1f01ff, 0x1200a9, 0x1301bf
	private := []entry{{user: system, mask: full}, {user: administrators, mask: full}, {user: me, mask: full}}
	with := func(more ...entry) access { return access{owner: administrators, entries: append(more, private...)} }
	for what, c := range map[string]struct {
		access
		within, way string // what is said of the folder, and of one on the way; empty: it is closed
	}{
		"private":                      {with(), "", ""},
		"it is this user's":            {access{owner: me, entries: private}, "", ""},
		"it is the installer's":        {access{owner: trustedInstaller, entries: private}, "", ""},
		"another user's":               {access{owner: bob, entries: private}, "belongs to <" + bob + ">, who", "/setowner *S-1-5-32-544"},
		"no list":                      {access{owner: me, all: true}, "has no access control list", "everyone could"},
		"others read":                  {with(entry{user: users, mask: read}), "", ""},
		"as below ProgramData":         {with(entry{user: users, mask: read}, entry{user: users, mask: 0x116}, entry{user: creatorOwner, mask: genericAll, inherited: true}), "may be written to by <" + users + ">", ""},
		"others write":                 {with(entry{user: everyone, mask: modify}), "/inheritance:r /grant:r *S-1-5-18:(OI)(CI)F *S-1-5-32-544:(OI)(CI)F *" + me, "/remove:g *S-1-1-0"},
		"others delete":                {with(entry{user: bob, mask: remove}), "may be written to by", "may be replaced by <" + bob + ">"},
		"others delete files":          {with(entry{user: bob, mask: deleteChild}), "may be written to by", "may be replaced by"},
		"others change the list":       {with(entry{user: bob, mask: writeDAC}), "may be written to by", "may be replaced by"},
		"others take it":               {with(entry{user: bob, mask: writeOwner}), "may be written to by", "may be replaced by"},
		"others do anything":           {with(entry{user: bob, mask: genericAll}), "may be written to by", "may be replaced by"},
		"others write, by generic":     {with(entry{user: bob, mask: genericSet}), "may be written to by", ""},
		"others write files in it":     {with(entry{user: users, mask: modify, inherited: true}), "may be written to by", ""},
		"the owner has rights":         {with(entry{user: ownerRights, mask: full}), "", ""},
		"creators, in the folder":      {with(entry{user: creatorOwner, mask: full}), "may be written to by", "may be replaced by"},
		"a condition":                  {with(entry{user: bob, strange: true}), "not understood", "not understood"},
		"a condition on administrator": {with(entry{user: administrators, strange: true}), "", ""},
	} {
		name := func(sid string) string { return "<" + sid + ">" }
		for which, got := range map[string]error{c.within: c.guarded(`C:\s`, me, name), c.way: c.leads(`C:\s`, me, name)} {
			if which == "" && got != nil || which != "" && (got == nil || !strings.Contains(got.Error(), which) || !strings.Contains(got.Error(), `C:\s`)) {
				t.Errorf("%s: %v, want %q", what, got, which)
			}
		}
	}
}
