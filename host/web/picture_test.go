// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/host/admin"
)

// drawn lists the lines of a picture, as "frontend → endpoint class".
func drawn(pic picture) (list []string) {
	at := func(x, middle int) string {
		i := slices.IndexFunc(pic.Boxes, func(b box) bool { return b.X == x && b.Y+boxHeight/2 == middle })
		return pic.Boxes[i].Text
	}
	for _, l := range pic.Lines {
		list = append(list, fmt.Sprintf("%s → %s %s", at(0, l.Y1), at(columnAt, l.Y2), l.Class))
	}
	return list
}

// TestDraw connects each frontend with its desired and its actual endpoints. An endpoint on this node, which the lists
// of a port mark with a word, is served like any other.
func TestDraw(t *testing.T) {
	s := serviceView{admin.ServiceDetail{Service: admin.Service{Namespace: "shop", Name: "web"}}}
	want := []string{
		"cluster-ip 10.96.0.10:80 → 10.244.1.7:8080 served",
		"cluster-ip 10.96.0.10:80 → 10.244.2.7:8080 missing",
		"cluster-ip 10.96.0.10:80 → 10.9.9.9:8080 extra",
		"node-port *:30080 local → 10.244.1.7:8080 served",
	}
	if got := drawn(s.Draw(webPort)); !slices.Equal(got, want) {
		t.Errorf("drawn:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	unread := webPort
	unread.Kernel = nil
	s.KernelUnread = "there is no process"
	pic := s.Draw(unread)
	if got := drawn(pic); len(got) != 3 || slices.ContainsFunc(got, func(l string) bool { return !strings.HasSuffix(l, " unread") }) {
		t.Errorf("without a read of the dataplane: %q", got)
	}
	if !strings.Contains(pic.Says, "What the dataplane has is not known.") {
		t.Errorf("the text is %q", pic.Says)
	}
	foreign := webPort
	foreign.Frontends = nil
	if got := drawn(s.Draw(foreign)); len(got) != 3 || slices.ContainsFunc(got, func(l string) bool { return !strings.HasSuffix(l, " extra") }) {
		t.Errorf("of frontends that should not be there: %q", got)
	}
}

// TestDrawMany draws the first endpoints, and says how many are missing.
func TestDrawMany(t *testing.T) {
	p := admin.Port{Network: "tcp6", Frontends: []string{"cluster-ip [2001:db8:1234:5678:9abc:def0:1234:5678]:65535"}}
	for n := range 1000 {
		p.Endpoints = append(p.Endpoints, admin.Endpoint{Address: fmt.Sprintf("[2001:db8::%x]:80", n), Ready: true})
	}
	pic := serviceView{}.Draw(p)
	if n := len(drawn(pic)); n != mostBoxes {
		t.Errorf("%d lines", n)
	}
	last := pic.Boxes[len(pic.Boxes)-1]
	if last.Text != "and 988 more" || pic.Height < last.Y+boxHeight || pic.Height > 1000 {
		t.Errorf("the last box %+v, of a picture %d high", last, pic.Height)
	}
	for _, b := range pic.Boxes {
		if n := len([]rune(b.Short(b.Text))); n > mostText {
			t.Errorf("a box shows %d characters of %q", n, b.Text)
		}
	}
}
