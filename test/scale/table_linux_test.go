// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

// figures are what a proxy costs; nil: it was given up.
type figures map[*row]float64

// A row of the table is a figure of both proxies. ratio: how many times Pointsman's kube-proxy's is.
type row struct {
	title string
	text  func(float64) string
	ratio bool
}

var (
	load      = &row{"first load", seconds, true}
	begun     = &row{"from its start until all is served", seconds, true}
	change    = &row{"one change", seconds, true}
	seen      = &row{"one change, until a call gets there", seconds, true}
	processor = &row{"processor, 100 changes a second", percent, true}
	memory    = &row{"memory at rest", func(mb float64) string { return fmt.Sprintf("%.0f MB", mb) }, true}
	connect   = &row{"new connection, longer by", longer, false}
	handed    = &row{"bytes to iptables-restore for one change", func(n float64) string { return fmt.Sprintf("%.0f", n) }, true}

	rows = []*row{load, begun, change, seen, processor, memory, connect, handed}
)

// goals are those of 10,000 Services and more, by mode and row: how many times Pointsman's figure kube-proxy's is.
var goals = map[string]map[*row]float64{
	"nftables":          {load: 20, change: 200, processor: 20, memory: 2},
	"iptables (nft)":    {load: 20, change: 200, processor: 20, memory: 2, handed: 100},
	"iptables (legacy)": {load: 20, change: 200, processor: 20, memory: 2, handed: 100},
}

func seconds(s float64) string {
	switch {
	case s < 0.01:
		return fmt.Sprintf("%.1f ms", s*1000)
	case s < 1:
		return fmt.Sprintf("%.0f ms", s*1000)
	}
	return fmt.Sprintf("%.1f s", s)
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", share*100) }

func longer(s float64) string { return fmt.Sprintf("%+.1f µs", s*1e6) }

// A table is what the page shows: rows of sizes, and a column for each mode.
type table struct {
	sizes []size
	cells map[string]string
}

const usualSizes = "1000x1 10000x1 44000x1"

func newTable(b *testing.B) *table {
	b.Helper()
	text := os.Getenv("POINTSMAN_BENCH_SIZES")
	t := &table{cells: make(map[string]string)}
	if text == "" {
		text = usualSizes
	}
	for _, word := range strings.Fields(text) {
		var s size
		if _, err := fmt.Sscanf(word, "%dx%d", &s.services, &s.endpoints); err != nil || s.services < 2 || s.endpoints < 1 {
			b.Fatalf("POINTSMAN_BENCH_SIZES: %q; try: 100x2", word)
		}
		t.sizes = append(t.sizes, s)
	}
	return t
}

// add notes what both cost, and reports their ratios.
func (t *table) add(b *testing.B, m mode, s size, ours, theirs figures) {
	b.Helper()
	for _, r := range rows {
		value, has := ours[r]
		if !has {
			continue
		}
		text, ratio := fmt.Sprintf("%s (not in %s)", r.text(value), giveUp), theirs[r]/value
		if theirs != nil {
			text = fmt.Sprintf("%s (%s)", r.text(value), r.text(theirs[r]))
		}
		if theirs != nil && r.ratio && value > 0 { // a change may be written before its answer comes
			digits := 0
			if ratio < 10 {
				digits = 1
			}
			text = fmt.Sprintf("%s **%.*f×**", text, digits, ratio)
			unit := "x-" + strings.ReplaceAll(r.title, " ", "-")
			if goal := goals[m.title][r]; goal > 0 && s.services >= 10_000 {
				unit += fmt.Sprintf("(≥%g)", goal)
			}
			b.ReportMetric(ratio, unit)
		}
		t.cells[s.String()+r.title+m.title] = text
	}
}

// print prints the table.
func (t *table) print(b *testing.B) {
	b.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n\n| Services × endpoints | |", machine(b))
	for _, m := range modes {
		fmt.Fprintf(&text, " %s |", m.title)
	}
	text.WriteString("\n|---|---|" + strings.Repeat("---|", len(modes)) + "\n")
	for _, s := range t.sizes {
		name := fmt.Sprintf("%d × %d", s.services, s.endpoints)
		for _, r := range rows {
			fmt.Fprintf(&text, "| %s | %s |", name, r.title)
			name = ""
			for _, m := range modes {
				fmt.Fprintf(&text, " %s |", t.cells[s.String()+r.title+m.title])
			}
			text.WriteString("\n")
		}
	}
	fmt.Printf("\n%s\n", text.String())
}

// machine says when, where and beside what was measured.
func machine(b *testing.B) string {
	b.Helper()
	info, err := buildinfo.ReadFile(kubeProxy)
	if err != nil {
		b.Fatal(err)
	}
	version := ""
	if i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == "k8s.io/kubernetes" }); i >= 0 {
		version = info.Deps[i].Version
	}
	said := func(name string, args ...string) string {
		out, err := exec.Command(name, args...).Output()
		if err != nil {
			b.Fatalf("%s: %v", name, err)
		}
		return strings.TrimSpace(string(out))
	}
	return fmt.Sprintf("Measured %s: %d processors, Linux %s, %s, %s, %s; kube-proxy %s, its figures in brackets.", time.Now().Format(time.DateOnly),
		runtime.NumCPU(), said("uname", "-r"), runtime.Version(), said("iptables", "--version"), said("nft", "--version"), version)
}
