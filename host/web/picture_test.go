// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/host/admin"
)

// drawn lists what a picture has between its frontends and endpoints, as "frontend → endpoint class".
func drawn(pic picture) []string {
	at := func(x, y int) string {
		i := slices.IndexFunc(pic.Boxes, func(b box) bool { return (b.X == x || b.X+boxWidth == x) && b.Y+boxHeight/2 == y })
		return pic.Boxes[i].Full
	}
	var list []string
	for _, l := range pic.Lines {
		if l.X1 > columnWidth {
			list = append(list, fmt.Sprintf("%s → %s %s", at(l.X1, l.Y1), at(l.X2, l.Y2), l.Class))
		}
	}
	return list
}

// TestDraw joins each frontend with the endpoints that it should lead to or does.
func TestDraw(t *testing.T) {
	s := admin.ServiceDetail{Service: admin.Service{Namespace: "shop", Name: "web"}}
	want := []string{
		"cluster-ip 10.96.0.10:80 → 10.244.1.7:8080 served",
		"cluster-ip 10.96.0.10:80 → 10.244.2.7:8080 missing",
		"cluster-ip 10.96.0.10:80 → 10.9.9.9:8080 extra",
		"node-port *:30080 local → 10.244.1.7:8080 served",
	}
	if got := drawn(draw(s, webPort)); !slices.Equal(got, want) {
		t.Errorf("drawn:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	unread := webPort
	unread.Kernel = nil
	s.KernelUnread = "there is no process"
	pic := draw(s, unread)
	for _, l := range drawn(pic) {
		if !strings.HasSuffix(l, " unread") {
			t.Errorf("what was not read: %s", l)
		}
	}
	if !strings.Contains(pic.Says, "What the dataplane has is not known.") {
		t.Errorf("it says %q", pic.Says)
	}
	foreign := webPort
	foreign.Frontends = nil
	if got := drawn(draw(s, foreign)); len(got) != 3 || !strings.HasSuffix(got[0], " extra") {
		t.Errorf("of a frontend that should not be there: %q", got)
	}
}

// TestDrawMany draws no more than a screen has room for, and says how many it leaves out.
func TestDrawMany(t *testing.T) {
	p := admin.Port{Network: "tcp6", Frontends: []string{"cluster-ip [2001:db8:1234:5678:9abc:def0:1234:5678]:65535"}}
	for n := range 1000 {
		addr := fmt.Sprintf("[2001:db8::%x]:80", n)
		p.Cluster = append(p.Cluster, addr)
		p.Endpoints = append(p.Endpoints, admin.Endpoint{Address: addr, Ready: true})
	}
	pic := draw(admin.ServiceDetail{}, p)
	if n := len(drawn(pic)); n != mostBoxes {
		t.Errorf("%d lines", n)
	}
	last := pic.Boxes[len(pic.Boxes)-1]
	if last.Text != "and 988 more" || pic.Height < last.Y+last.Height || pic.Height > 1000 {
		t.Errorf("the last box %+v, of a picture %d high", last, pic.Height)
	}
	for _, b := range pic.Boxes {
		if len([]rune(b.Text)) > mostText || len([]rune(b.Note)) > mostText {
			t.Errorf("a box that its text does not fit: %+v", b)
		}
	}
}
