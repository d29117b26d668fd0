// SPDX-License-Identifier: Apache-2.0

package phrase

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// shown is how many names a line has.
const shown = 3

// Some lists the first three names, and how many more there are.
func Some(names []string) string {
	n := min(shown, len(names))
	return List(names[:n]) + AndMore(len(names)-n)
}

// Alike groups what is alike but for a name, such as "remove nat KUBE-SVC-A" and "remove nat
// KUBE-SVC-B", and what is about several names by itself, as "sets KUBE-A KUBE-B" is. What stands
// alone stays as it is.
func Alike(items []string) []string {
	var order []string
	groups := make(map[string][]string)
	for _, item := range items {
		what, _ := cutName(item)
		if groups[what] == nil {
			order = append(order, what)
		}
		groups[what] = append(groups[what], item)
	}
	lines := []string{}
	for _, what := range order {
		group := groups[what]
		count := 0
		var names []string
		for _, item := range group {
			_, name := cutName(item)
			some := []string{name}
			if list, ok := strings.CutPrefix(item, "sets "); ok {
				some = strings.Fields(list)
			}
			count += len(some)
			for _, name := range some {
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
		if count == 1 || what == "" {
			lines = append(lines, group...)
			continue
		}
		lines = append(lines, fmt.Sprintf("%s (%d): %s", what, count, Some(names)))
	}
	return lines
}

// cutName cuts an item before its name: the first word with a capital, a digit or a slash, and the
// last word where there is none. Before that may stand where the thing is, with a colon.
func cutName(item string) (what, name string) {
	where, rest, ok := strings.Cut(item, ": ")
	if where += ": "; !ok || strings.Count(where, " ") > 2 {
		where, rest = "", item
	}
	words := strings.Fields(rest)
	i := slices.IndexFunc(words, func(word string) bool {
		return strings.ContainsFunc(word, func(r rune) bool { return unicode.IsUpper(r) || unicode.IsDigit(r) || r == '/' })
	})
	if i < 0 {
		i = len(words) - 1
	}
	if i < 1 {
		return "", item
	}
	return where + strings.Join(words[:i], " "), strings.TrimSuffix(words[i], ":")
}
