// SPDX-License-Identifier: Apache-2.0

package lines

import (
	"fmt"
	"strings"
	"testing"
)

func TestEach(t *testing.T) {
	tests := []struct {
		name, in string
		want     []string
	}{
		{"nothing", "", nil},
		{"lines", "a\nb\n", []string{"a", "b"}},
		{"no end", "a\nb", []string{"a", "b"}},
		{"empty ones", "\n\na\n", []string{"", "", "a"}},
		{"carriage returns", "a\r\nb\r\n", []string{"a", "b"}},
		{"a long one", strings.Repeat("x", Max+100) + "\nb\n", []string{strings.Repeat("x", Max) + "… (100 bytes more)", "b"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			Each(strings.NewReader(test.in), func(l string) { got = append(got, l) })
			if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", test.want) {
				t.Errorf("got %.200q", got)
			}
		})
	}
}
