// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// A screen is where the demo is told. On a terminal pictures are drawn over one
// another; elsewhere only the last of each stays.
type screen struct {
	out      io.Writer
	terminal bool
	drawn    int // lines of the picture that the next one replaces
}

func newScreen(out io.Writer) *screen {
	s := &screen{out: out}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		s.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return s
}

func (s *screen) title() {
	fmt.Fprint(s.out, `Pointsman at work on this machine: no cluster, no root, half a minute.

   manifests ──▶ pointsman run ══════▶ its plugin, a process of its own
                                              │
   requests ──▶ the Services' addresses ──────┴──▶ small servers in the demo
`)
}

// step begins the next part of the story.
func (s *screen) step(title string) {
	if s.terminal {
		title = "\x1b[1m" + title + "\x1b[0m"
	}
	fmt.Fprintf(s.out, "\n%s\n", title)
}

// say says a line that stays.
func (s *screen) say(format string, args ...any) {
	fmt.Fprintf(s.out, "   "+format+"\n", args...)
}

// show draws a picture that the next one replaces.
func (s *screen) show(lines []string) {
	if !s.terminal {
		return
	}
	var picture string
	if s.drawn > 0 {
		picture = fmt.Sprintf("\x1b[%dA", s.drawn)
	}
	for _, l := range lines {
		picture += "\x1b[2K   " + l + "\n"
	}
	s.drawn = len(lines)
	_, _ = io.WriteString(s.out, picture+"\x1b[0J") // at once, so that it does not flicker
}

// keep draws a picture that stays.
func (s *screen) keep(lines []string) {
	if s.terminal {
		s.show(lines)
		s.drawn = 0
		return
	}
	for _, l := range lines {
		s.say("%s", l)
	}
}

// barWidth is how long the bar of the endpoint with the most answers is.
const barWidth = 32

// bars returns a picture of what answered how often.
func bars(by map[string]int) (lines []string) {
	most := 1
	for _, n := range by {
		most = max(most, n)
	}
	for _, svc := range services() {
		label := svc.name
		for _, ep := range svc.endpoints {
			n := by[ep.name]
			bar := strings.Repeat("█", (n*barWidth+most-1)/most)
			lines = append(lines, strings.TrimRight(fmt.Sprintf("%-6s %-8s %4d  %s", label, ep.name, n, bar), " "))
			label = ""
		}
	}
	return lines
}
