// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A few lines that stand for much are refused before they cost much; the rest of the
// file is read.
func TestLimitsOfOneFile(t *testing.T) {
	object := "apiVersion: v1\n  kind: Service\n  metadata: {name: web, namespace: ns1, annotations: {a: \"" + strings.Repeat("x", 1<<20) + "\"}}\n  spec: {clusterIP: 172.30.0.1, ports: [{port: 80}]}\n"
	good := "\n---\n" + serviceText("good", "172.30.0.9")
	for _, tc := range []struct{ name, text, want string }{
		{"two thousand aliases to a large object",
			"x: &o\n  " + object + "apiVersion: v1\nkind: List\nitems: [" + strings.Repeat("*o,", 2000) + "]" + good, "the aliases in this file stand for more than 8 MiB"},
		{"the same, in documents of their own",
			strings.Repeat("x: &o\n  "+object[:strings.Index(object, "xx")]+"\"}}\n  spec: {clusterIP: 172.30.0.1, ports: [{port: 80}]}\nl: &l ["+strings.Repeat("*o,", 200)+"]\napiVersion: v1\nkind: List\nitems: ["+strings.Repeat("*o,", 2000)+"]\n---\n", 200) + good[5:], "the aliases in this file stand for more than 8 MiB"},
		{"a large value in each object",
			"x: &v " + strings.Repeat("x", 1<<20) + "\napiVersion: v1\nkind: List\nitems:\n" + strings.Repeat("- {apiVersion: v1, kind: Service, metadata: {name: web, annotations: {a: *v}}}\n", 2000) + good, "the aliases in this file stand for more than 8 MiB"},
		{"a list that holds itself",
			"&l\napiVersion: v1\nkind: List\nitems: [*l, *l]" + good, "lists are nested deeper than 8"},
		{"lists of lists of lists",
			"a: &a {apiVersion: v1, kind: List, items: [" + strings.Repeat("{kind: x},", 99) + "]}\nb: &b {apiVersion: v1, kind: List, items: [" + strings.Repeat("*a,", 999) + "]}\napiVersion: v1\nkind: List\nitems: [" + strings.Repeat("*b,", 999) + "]" + good, "the aliases in this file stand for more than 8 MiB"},
		{"a value that holds itself",
			"apiVersion: v1\nkind: Service\nmetadata: &m {name: x, annotations: [*m, *m]}" + good, "values are nested deeper than 64"},
		{"millions of values without an alias",
			"a: [" + strings.Repeat("1,", 5<<20) + "]" + good, "this document has more than 4194304 commas, colons and lines"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			begun := time.Now()
			m := parsed("web.yaml", []byte(tc.text))
			took := time.Since(begun)
			runtime.ReadMemStats(&after)
			spent := (after.TotalAlloc - before.TotalAlloc) >> 20
			t.Logf("%s, %d MiB, %d faults", took.Round(time.Millisecond), spent, len(m.Faults))
			if !strings.Contains(fmt.Sprint(m.Faults), tc.want) {
				t.Errorf("faults %.300v, want %q", m.Faults, tc.want)
			}
			if n := len(m.Faults); n > maxFaults+1 {
				t.Errorf("%d faults", n)
			}
			if last := m.Objects; len(last) == 0 || last[len(last)-1].ID.Name != "good" {
				t.Errorf("the good Service of the same file is not read: %v", m.Objects)
			}
			if spent > 1500 { // 320 without the race detector, which makes 1050 of them
				t.Errorf("it cost %d MiB", spent)
			}
		})
	}
}

func TestManyDocuments(t *testing.T) {
	m := parsed("web.yaml", []byte(serviceText("web", "172.30.0.1")+strings.Repeat("---\n", 2*maxDocuments)))
	if len(m.Objects) != 1 || len(m.Faults) != 1 || !strings.Contains(m.Faults[0].Message, "more than 100000 documents") {
		t.Errorf("%d objects, faults %v", len(m.Objects), m.Faults)
	}
}
