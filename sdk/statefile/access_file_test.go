// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"strings"
	"testing"
)

// TestGuard: a plugin's file and folder may be changed by those that may change the host.
func TestGuard(t *testing.T) {
	const me, bob, users, everyone = "S-1-5-21-1-2-3-1001", "S-1-5-21-1-2-3-1002", "S-1-5-32-545", "S-1-1-0"
	const full, read, modify = 0x1f01ff, 0x1200a9, 0x1301bf
	private := []entry{{user: system, mask: full}, {user: administrators, mask: full}, {user: me, mask: full}, {user: users, mask: read}}
	with := func(more ...entry) access { return access{owner: administrators, entries: append(more, private...)} }
	bobs := access{owner: bob, entries: private}
	for what, c := range map[string]struct {
		host, has  access
		within, on string // what is said of the file and its folder, and of a folder on the way; empty: nothing
	}{
		"as installed":                  {with(), with(), "", ""},
		"the installer's":               {with(), access{owner: trustedInstaller, entries: private}, "", ""},
		"this user's":                   {with(), access{owner: me, entries: private}, "", ""},
		"another user's":                {with(), bobs, "belongs to <" + bob + ">", `icacls "C:\p" /setowner *S-1-5-32-544`},
		"the host's owner's":            {bobs, bobs, "", ""},
		"others write":                  {with(), with(entry{user: users, mask: modify}), `icacls "C:\p" /inheritance:d, then icacls "C:\p" /remove:g *` + users, "may be changed by <" + users + ">"},
		"others add, as below a volume": {with(), with(entry{user: users, mask: read | addFolder}), "may be changed by <" + users + ">", ""},
		"others write what is made":     {with(), with(entry{user: users, mask: modify, inherited: true}), "", ""},
		"others delete":                 {with(), with(entry{user: bob, mask: remove}), "may be changed by", "may be changed by"},
		"others change the list":        {with(), with(entry{user: bob, mask: writeDAC}), "may be changed by", "may be changed by"},
		"others write the host, too":    {with(entry{user: users, mask: modify}), with(entry{user: users, mask: modify}), "", ""},
		"others read the host":          {with(entry{user: everyone, mask: read}), with(entry{user: everyone, mask: modify}), "may be changed by", "may be changed by"},
		"others inherit the host's":     {with(entry{user: bob, mask: modify, inherited: true}), with(entry{user: bob, mask: modify}), "may be changed by", "may be changed by"},
		"no list":                       {with(), access{owner: me, all: true}, "has no access control list", `icacls "C:\p" /reset`},
		"the host has no list":          {access{owner: me, all: true}, access{owner: bob, all: true}, "", ""},
		"nothing is known of the host":  {access{}, with(entry{user: bob, mask: modify}), "may be changed by", "may be changed by"},
		"a condition":                   {with(), with(entry{user: "an entry of kind 9", strange: true}), "not understood", "not understood"},
		"a condition on the host":       {with(entry{user: bob, strange: true}), with(entry{user: bob, mask: modify}), "may be changed by", "may be changed by"},
		"the owner has rights":          {with(), with(entry{user: ownerRights, mask: full}), "", ""},
	} {
		g := newGuard(c.host, me, nil)
		name := func(sid string) string { return "<" + sid + ">" }
		for _, on := range []struct {
			place
			want string
		}{
			{place{"file", `C:\p`, changesWithin}, c.within},
			{place{"folder", `C:\p`, changesWithin}, c.within},
			{place{"folder", `C:\p`, changesPath}, c.on},
		} {
			got := g.guards(on.place, c.has, name)
			if on.want == "" && got != nil || on.want != "" && (got == nil || !strings.Contains(got.Error(), on.want) || !strings.HasPrefix(got.Error(), on.what+` C:\p `)) {
				t.Errorf("%s: %v, want %q of the %s", what, got, on.want, on.what)
			}
		}
	}
}

// TestGuardPasses: a folder that leads to the host is as open as the host is.
func TestGuardPasses(t *testing.T) {
	g := newGuard(access{}, administrators, []string{`C:\Tools`, `C:\`})
	if !g.passes(`c:\tools`) || !g.passes(`C:\`) || g.passes(`C:\Tools\plugins`) {
		t.Error("other folders pass than those that lead to the host")
	}
	var got []string
	for _, p := range places(`C:\a\b\p.exe`, []string{`C:\a\b`, `C:\a`, `C:\`}) {
		if p.changes == changesPath {
			got = append(got, p.path)
		}
	}
	if strings.Join(got, " ") != `C:\a C:\` {
		t.Errorf("of %q alone it does not matter what else is in it", got)
	}
}
