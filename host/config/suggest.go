// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"
)

// suggest finds among words the one that was probably meant; empty: none is near.
func suggest(word string, words []string) string {
	best, least := "", max(1, min(3, len(word)/3))+1
	for _, w := range slices.Sorted(slices.Values(words)) {
		if strings.EqualFold(word, w) {
			return w
		}
		if d := distance(strings.ToLower(word), strings.ToLower(w)); d < least {
			best, least = w, d
		}
	}
	return best
}

// distance returns the number of letters to insert, delete, replace or swap with the
// next one to make b of a.
func distance(a, b string) int {
	before, last, row := []int{}, make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, make([]int, len(b)+1)
	}
	return last[len(b)]
}
