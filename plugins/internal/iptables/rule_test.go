// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"
	"strings"
	"testing"
)

// A Text is always one word of one line. Fields returns it unchanged, except characters that no line can have.
func TestTextIsOneWord(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "",
		"web":                      "web",
		`a "b" c`:                  `a "b" c`,
		`back\slash 'n' quote`:     `back\slash 'n' quote`,
		"two\nlines\r\tand\x00nil": "two?lines??and?nil",
		"-j ACCEPT":                "-j ACCEPT",
		"\xff\xfe":                 "??",
	} {
		fields, err := Words("-m comment --comment", Text(text), "-j DROP").Fields()
		if err != nil || !slices.Equal(fields, []string{"-m", "comment", "--comment", want, "-j", "DROP"}) && want != "" {
			t.Errorf("%q comes back in %q, %v", text, fields, err)
		}
	}
	long := Words("--comment", Text(strings.Repeat("я", 300)))
	if len(long) > 220 || !strings.HasSuffix(string(long), `"`) {
		t.Errorf("a text too long for a comment becomes %d bytes", len(long))
	}
	if _, err := Rule(`--comment "open`).Fields(); err == nil {
		t.Error("a quote that is not closed is no error")
	}
}

func TestTargetAndComment(t *testing.T) {
	for _, c := range []struct {
		rule            Rule
		target, comment string
	}{
		{`-m comment --comment "a b" -j X`, "X", "a b"},
		{"-d 10.0.0.0/8 -g Y", "Y", ""},
		{"-p tcp", "", ""},
		{`--comment "open`, "", ""},
	} {
		if c.rule.Target() != c.target || c.rule.Comment() != c.comment {
			t.Errorf("%q has the target %q and the comment %q", c.rule, c.rule.Target(), c.rule.Comment())
		}
	}
}

// Share prints a probability as iptables-save does.
func TestShare(t *testing.T) {
	for _, c := range []struct {
		part, whole int
		want        string
	}{
		{1, 2, "0.50000000000"}, {1, 3, "0.33333333349"}, {2, 3, "0.66666666651"}, {1, 10, "0.10000000009"},
	} {
		if got := Share(c.part, c.whole); got != c.want {
			t.Errorf("Share(%d, %d) = %s, want %s", c.part, c.whole, got, c.want)
		}
	}
}
