// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"fmt"
	"strings"
)

// A failure is what one or more checks failed by, in the same words.
type failure []Finding

// groups returns the failures among findings, those that are equal as one, in order.
func groups(findings []Finding) (all []failure) {
	at := make(map[string]int)
	for _, f := range findings {
		if f.Status != Fail {
			continue
		}
		key := failure{f}.key()
		i, known := at[key]
		if !known {
			i = len(all)
			at[key] = i
			all = append(all, nil)
		}
		all[i] = append(all[i], f)
	}
	return all
}

// key is the same for failures that are equal.
func (g failure) key() string { return g[0].Reason + "\x00" + g[0].Want + "\x00" + g[0].Seen }

func (g failure) has(f Finding) bool { return failure{f}.key() == g.key() }

// names are those of its checks; with their lines, where there are several.
func (g failure) names() string {
	if len(g) == 1 {
		return g[0].name()
	}
	var all []string
	for _, f := range g {
		all = append(all, f.Check)
	}
	return fmt.Sprintf("%d checks%s", len(g), some(all))
}

// text returns the failure, with what was expected and seen below it, and by which process.
func (g failure) text() string {
	f := g[0]
	text := g.names()
	if where := f.where(); where != "" {
		text += ": " + where
	}
	line := func(label, what string) {
		if what != "" {
			text += "\n" + label + strings.ReplaceAll(what, "\n", "\n          ")
		}
	}
	line("expected  ", f.Want)
	line("seen      ", f.Seen)
	line("process   ", f.Process)
	return text
}

// where returns the reason without what was expected and seen.
func (f Finding) where() string {
	if f.Want == "" && f.Seen == "" {
		return f.Reason
	}
	m := mismatch{want: f.Want, seen: f.Seen}
	return strings.TrimSuffix(strings.TrimSuffix(f.Reason, m.Error()), ": ")
}
