// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// texts are values as their String says them; no values are an empty list.
func texts[T fmt.Stringer](values []T) []string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = v.String()
	}
	return list
}

// plainTexts are named strings as plain ones.
func plainTexts[S ~string](values []S) []string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = string(v)
	}
	return list
}

// listOf is a list in a sentence.
func listOf[S ~string](values []S) string {
	if len(values) == 0 {
		return "nothing"
	}
	return strings.Join(plainTexts(values), ", ")
}
