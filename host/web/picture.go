// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/phrase"
)

// A picture is a packet's way through one port of a Service: from the objects to the frontends at which
// it comes in, and on to the endpoints, as they should be and as the dataplane has them.
type picture struct {
	Width, Height int
	Says          string // what is to be seen, in a sentence
	Boxes         []box
	Lines         []line
}

// A box is one thing. Its text begins at X+10.
type box struct {
	X, Y, Width, Height int
	Text, Note          string // the note is a second line
	Full                string // Text, where that was cut
	Class               string
}

// A line leads from one box to another.
type line struct {
	X1, Y1, X2, Y2 int
	Class          string
}

// The classes of lines between frontends and endpoints.
const (
	lineServed  = "served"  // it should be, and the dataplane has it
	lineMissing = "missing" // it should be, and the dataplane does not have it
	lineExtra   = "extra"   // the dataplane has it, and it should not be
	lineUnread  = "unread"  // it should be, and what the dataplane has is not known
)

// The measures of a picture, in units of its own.
const (
	boxWidth, boxHeight, boxGap = 250, 44, 12
	columnWidth                 = 315
	headHeight                  = 28
	mostBoxes                   = 12 // of one column; the tables have all
	mostText                    = 31 // characters of one line in a box
)

// draw draws port p of a Service.
func draw(s admin.ServiceDetail, p admin.Port) picture {
	frontends, endpoints := frontendsOf(p), endpointsOf(p)
	pic := picture{Says: sentence(s, p, frontends, endpoints)}
	pic.column(0, "Kubernetes objects", objectsOf(s))
	pic.column(1, "frontends", frontends)
	pic.column(2, "endpoints", endpoints)
	for i := range min(len(frontends), mostBoxes) {
		pic.join(0, 0, 1, i, lineServed)
	}
	for i, f := range frontends[:min(len(frontends), mostBoxes)] {
		for j, e := range endpoints[:min(len(endpoints), mostBoxes)] {
			if class := lineOf(p, f.Full, e.Full); class != "" {
				pic.join(1, i, 2, j, class)
			}
		}
	}
	pic.Width = 2*columnWidth + boxWidth + 2 // with the edges of the first and the last box
	return pic
}

// column draws one below the other, and says how many more there are.
func (pic *picture) column(n int, head string, boxes []box) {
	x := n * columnWidth
	pic.Boxes = append(pic.Boxes, box{X: x, Y: 0, Width: boxWidth, Height: headHeight, Text: head, Class: "head"})
	for i, b := range boxes {
		b.X, b.Y, b.Width, b.Height = x, top(i), boxWidth, boxHeight
		if i == mostBoxes {
			b.Text, b.Note, b.Full, b.Class = fmt.Sprintf("and %d more", len(boxes)-i), "", "", "more"
		}
		b.Text, b.Note = shorten(b.Text), shorten(b.Note)
		pic.Boxes = append(pic.Boxes, b)
		pic.Height = max(pic.Height, b.Y+boxHeight+1)
		if i == mostBoxes {
			return
		}
	}
}

// join draws a line from a box of one column to a box of another.
func (pic *picture) join(from, i, to, j int, class string) {
	middle := boxHeight / 2
	pic.Lines = append(pic.Lines, line{from*columnWidth + boxWidth, top(i) + middle, to * columnWidth, top(j) + middle, class})
}

func top(i int) int { return headHeight + i*(boxHeight+boxGap) }

func shorten(text string) string {
	if letters := []rune(text); len(letters) > mostText {
		return string(letters[:mostText-1]) + "…"
	}
	return text
}

func objectsOf(s admin.ServiceDetail) []box {
	name := s.Namespace + "/" + s.Name
	boxes := []box{{Text: name, Full: name, Note: "Service", Class: "object"}}
	for _, slice := range s.EndpointSlices {
		boxes = append(boxes, box{Text: slice, Full: slice, Note: "EndpointSlice", Class: "object"})
	}
	return boxes
}

// frontendsOf returns those that p should have, and those that the dataplane has besides.
func frontendsOf(p admin.Port) []box {
	var boxes []box
	for _, f := range p.Frontends {
		b := box{Text: f, Full: f, Note: "what is served there is not known", Class: "unread"}
		if k := programmed(p, f); k != nil {
			b.Note, b.Class = "served as it should be", "good"
			if k.Differs != "" {
				b.Note, b.Class = k.Differs, "bad"
			}
		}
		boxes = append(boxes, b)
	}
	for _, k := range p.Kernel {
		if !slices.Contains(p.Frontends, k.Frontend) {
			boxes = append(boxes, box{Text: k.Frontend, Full: k.Frontend, Note: k.Differs, Class: "bad"})
		}
	}
	return boxes
}

// endpointsOf returns all that p has, the used ones first, and those that the dataplane has besides.
func endpointsOf(p admin.Port) []box {
	var used, unused []box
	for _, e := range p.Endpoints {
		b := box{Text: e.Address, Full: e.Address, Note: e.Condition(), Class: "good"}
		if e.Node != "" {
			b.Note += " on " + e.Node
		}
		if e.NotCluster != "" && e.NotLocal != "" {
			b.Note, b.Class = e.NotCluster, "idle"
			unused = append(unused, b)
			continue
		}
		used = append(used, b)
	}
	boxes := slices.Concat(used, unused)
	for _, k := range p.Kernel {
		for _, addr := range k.Endpoints {
			if !slices.ContainsFunc(boxes, func(b box) bool { return b.Full == addr }) {
				boxes = append(boxes, box{Text: addr, Full: addr, Note: "no endpoint of this Service", Class: "bad"})
			}
		}
	}
	return boxes
}

// lineOf returns how a frontend leads to an endpoint; empty: it does not, and should not.
func lineOf(p admin.Port, frontend, endpoint string) string {
	wanted := slices.Contains(p.Frontends, frontend) && slices.Contains(listOf(p, frontend), endpoint)
	k := programmed(p, frontend)
	has := k != nil && slices.Contains(k.Endpoints, endpoint)
	switch {
	case wanted && has:
		return lineServed
	case wanted && k == nil:
		return lineUnread
	case wanted:
		return lineMissing
	case has:
		return lineExtra
	}
	return ""
}

// listOf returns the endpoints that a frontend should lead to, by its traffic policy.
func listOf(p admin.Port, frontend string) []string {
	if slices.Contains(strings.Fields(frontend), "local") {
		return p.Local
	}
	return p.Cluster
}

// programmed returns a frontend as the dataplane has it; nil: that is not known.
func programmed(p admin.Port, frontend string) *admin.Programmed {
	i := slices.IndexFunc(p.Kernel, func(k admin.Programmed) bool { return k.Frontend == frontend })
	if i < 0 {
		return nil
	}
	return &p.Kernel[i]
}

// sentence says what the picture shows, for readers who do not see it.
func sentence(s admin.ServiceDetail, p admin.Port, frontends, endpoints []box) string {
	differ, unused := 0, 0
	for _, f := range frontends {
		if f.Class == "bad" {
			differ++
		}
	}
	for _, e := range endpoints {
		if e.Class != "good" {
			unused++
		}
	}
	text := fmt.Sprintf("%s: %s lead to %s, of which %d may not be used.", s.PortName(p), phrase.Count(len(frontends), "frontend"), phrase.Count(len(endpoints), "endpoint"), unused)
	switch {
	case s.KernelUnread != "":
		return text + " What the dataplane has is not known."
	case differ > 0:
		return text + fmt.Sprintf(" In the dataplane %d of the frontends differ from what should be.", differ)
	}
	return text + " The dataplane has them as they should be."
}
