// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/phrase"
)

// A picture shows the ways through one port of a Service, from its frontends to its endpoints:
// the desired ones and those that the dataplane has.
type picture struct {
	Height int
	Says   string // the content in words
	Boxes  []box
	Lines  []line
}

// A box is a frontend or an endpoint.
type box struct {
	X, Y              int
	Text, Note, Class string

	cluster, local bool // for an endpoint: frontends with this policy should lead to it
}

// Short cuts text to the width of the box.
func (b box) Short(text string) string {
	if letters := []rune(text); len(letters) > mostText {
		return string(letters[:mostText-1]) + "…"
	}
	return text
}

// A line leads from the middle of a frontend to the middle of an endpoint.
type line struct {
	Y1, Y2 int
	Class  string
}

// Sizes in a picture. service.html has the widths.
const (
	boxHeight, boxGap = 44, 12
	columnAt          = 560 // x of the column of endpoints
	mostBoxes         = 12  // per column; the tables show all
	mostText          = 44  // characters per line in a box
)

// Draw draws port p of the Service.
func (s serviceView) Draw(p admin.Port) (pic picture) {
	names, kernel, differ := slices.Clone(p.Frontends), make(map[string]admin.Programmed), 0
	for _, k := range p.Kernel {
		kernel[k.Frontend] = k
		if !slices.Contains(names, k.Frontend) {
			names = append(names, k.Frontend)
		}
	}
	var frontends []box
	endpoints := endpointsOf(p)
	for i, name := range names {
		k, read := kernel[name]
		b := box{Text: name, Note: cmp.Or(k.Differs, "served as it should be"), Class: "good"}
		if !read {
			b.Note, b.Class = "what is served there is not known", "idle"
		} else if k.Differs != "" {
			b.Class = "bad"
			differ++
		}
		frontends = append(frontends, b)
		local := slices.Contains(strings.Fields(name), "local")
		for j, e := range endpoints[:min(len(endpoints), mostBoxes)] {
			wanted := i < len(p.Frontends) && (local && e.local || !local && e.cluster)
			if class := classOf(wanted, read, slices.Contains(k.Endpoints, e.Text)); class != "" && i < mostBoxes {
				pic.Lines = append(pic.Lines, line{top(i) + boxHeight/2, top(j) + boxHeight/2, class})
			}
		}
	}
	pic.column(0, frontends)
	pic.column(columnAt, endpoints)
	pic.Says = fmt.Sprintf("%s: %s and %s.", s.PortName(p), phrase.Count(len(frontends), "frontend"), phrase.Count(len(endpoints), "endpoint"))
	switch {
	case s.KernelUnread != "":
		pic.Says += " What the dataplane has is not known."
	case differ > 0:
		pic.Says += fmt.Sprintf(" In the dataplane %d of the frontends differ from what should be.", differ)
	default:
		pic.Says += " The dataplane has them as they should be."
	}
	return pic
}

// classOf returns the class of the line from a frontend to an endpoint, or "" if there is no line.
func classOf(wanted, read, has bool) string {
	switch {
	case wanted && has:
		return "served"
	case wanted && read:
		return "missing"
	case wanted:
		return "unread"
	case has:
		return "extra"
	}
	return ""
}

// column adds boxes one below the other. The last box says how many were left out.
func (pic *picture) column(x int, boxes []box) {
	if n := len(boxes) - mostBoxes; n > 0 {
		boxes = append(boxes[:mostBoxes:mostBoxes], box{Text: fmt.Sprintf("and %d more", n), Class: "idle"})
	}
	for i, b := range boxes {
		b.X, b.Y = x, top(i)
		pic.Boxes = append(pic.Boxes, b)
		pic.Height = max(pic.Height, top(i+1))
	}
}

func top(i int) int { return 1 + i*(boxHeight+boxGap) }

// endpointsOf returns the endpoints of p: the used ones, the unused ones, and those that only
// the dataplane has.
func endpointsOf(p admin.Port) []box {
	var used, unused []box
	for _, e := range p.Endpoints {
		b := box{Text: e.Address, Note: e.Condition(), Class: "good", cluster: e.NotCluster == "", local: e.NotLocal == ""}
		if e.Node != "" {
			b.Note += " on " + e.Node
		}
		if b.cluster || b.local {
			used = append(used, b)
			continue
		}
		b.Note, b.Class = e.NotCluster, "idle"
		unused = append(unused, b)
	}
	boxes := slices.Concat(used, unused)
	for _, k := range p.Kernel {
		for _, addr := range k.Endpoints {
			if !slices.ContainsFunc(boxes, func(b box) bool { return b.Text == addr }) {
				boxes = append(boxes, box{Text: addr, Note: "no endpoint of this Service", Class: "bad"})
			}
		}
	}
	return boxes
}
