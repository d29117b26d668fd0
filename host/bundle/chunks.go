// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"io"
	"slices"
)

// The sizes of what a scrubbing writer holds.
const (
	leastWindow = 16 << 10
	leastChunk  = 64 << 10
	keptEnd     = 512 // of a secret longer than a window; the last line of a private key is shorter
)

// A scrubbing writer takes secrets out of a text that comes in parts of any size, as Scrubber.Text takes
// them out of one that is whole. It holds a chunk and a window: the text before the window is passed on,
// but for a secret that reaches into the window, which waits until its end is there. A window is as long as
// the longest value that is known to be secret.
//
// Of a secret that is longer than both, the middle is forgotten, so that what is held stays bounded.
type scrubbing struct {
	s      *Scrubber
	w      io.Writer
	window int
	text   []byte // what is held; its capacity is a chunk and a window
}

// scrubbed writes to w what is written to it, without secrets. The caller calls Close in the end, which
// does not close w.
func (s *Scrubber) scrubbed(w io.Writer) *scrubbing {
	window := leastWindow
	if len(s.values) > 0 {
		window = max(window, len(s.values[0]))
	}
	return newScrubbing(s, w, window, max(leastChunk, 3*window))
}

func newScrubbing(s *Scrubber, w io.Writer, window, chunk int) *scrubbing {
	return &scrubbing{s: s, w: w, window: window, text: make([]byte, 0, window+chunk)}
}

func (c *scrubbing) Write(p []byte) (n int, err error) {
	for n < len(p) {
		part := min(len(p)-n, cap(c.text)-len(c.text))
		c.text = append(c.text, p[n:n+part]...)
		n += part
		if len(c.text) == cap(c.text) {
			if err := c.shift(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// cut is for a text that broke off: what it ends with may be the beginning of a secret, which looks like none.
// It takes away the last line, if that has no end, and what a value of several lines begins with.
func (c *scrubbing) cut() {
	c.text = c.text[:bytes.LastIndexByte(c.text, '\n')+1]
	for before := -1; before != len(c.text); {
		before = len(c.text)
		for _, v := range c.s.values {
			c.text = c.text[:len(c.text)-begun(c.text, v)]
		}
	}
}

// begun returns how many bytes of value, but not all of them, a text ends with.
func begun(text []byte, value string) int {
	for n := min(len(value)-1, len(text)); n > 0; n-- {
		if string(text[len(text)-n:]) == value[:n] {
			return n
		}
	}
	return 0
}

// Close writes what is still held.
func (c *scrubbing) Close() error {
	err := c.pass(c.text)
	c.text = c.text[:0]
	return err
}

// shift makes room: it passes on what lies before the window, up to a secret that reaches into it.
func (c *scrubbing) shift() error {
	border := len(c.text) - c.window
	spans := c.s.spans(c.text)
	for _, s := range spans {
		if s.from < border && border < s.to {
			border = s.from
		}
	}
	if border == 0 { // a secret, or several that overlap, from the start on
		first := slices.MaxFunc(spans, func(a, b span) int { return a.reach() - b.reach() })
		if first.to > c.window+keptEnd {
			c.text = append(c.text[:c.window], c.text[first.to-keptEnd:]...)
			return nil
		}
		border = first.to
	}
	err := c.pass(c.text[:border])
	c.text = append(c.text[:0], c.text[border:]...)
	return err
}

func (c *scrubbing) pass(text []byte) (err error) {
	if c.s.suspects(text) {
		_, err = io.WriteString(c.w, c.s.Text(string(text)))
	} else if len(text) > 0 {
		_, err = c.w.Write(text)
	}
	return err
}

// A span is where a secret is in a text.
type span struct{ from, to int }

// reach is how far s reaches from the start of the text: nowhere, if it begins later.
func (s span) reach() int {
	if s.from > 0 {
		return 0
	}
	return s.to
}

// spans are all secrets in a text, the last first, of each value and pattern by itself: they may overlap.
func (s *Scrubber) spans(text []byte) (found []span) {
	if !s.suspects(text) {
		return nil
	}
	for _, v := range s.values {
		for at := 0; ; {
			next := bytes.Index(text[at:], []byte(v))
			if next < 0 {
				break
			}
			at += next + len(v)
			found = append(found, span{at - len(v), at})
		}
	}
	lower := fold(s, text)
	for _, p := range patterns {
		if !p.mayFit(lower) {
			continue
		}
		for _, at := range p.form.FindAllIndex(text, -1) {
			found = append(found, span{at[0], at[1]})
		}
	}
	slices.SortFunc(found, func(a, b span) int { return b.from - a.from })
	return found
}

// suspects reports whether there may be a secret in a text. Most texts have none, and are neither copied
// nor compared with each pattern.
func (s *Scrubber) suspects(text []byte) bool {
	for _, v := range s.values {
		if bytes.Contains(text, []byte(v)) {
			return true
		}
	}
	lower := fold(s, text)
	return slices.ContainsFunc(patterns, func(p pattern) bool { return p.mayFit(lower) })
}
