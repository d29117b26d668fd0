// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// Gone stands where a secret was.
const Gone = "(secret)"

// shortest is how many bytes a value has at least to be looked for: what is shorter is no secret, and
// would be found in everything.
const shortest = 6

// A pattern is what a secret looks like. What it has in a group stays.
type pattern struct {
	form  *regexp.Regexp
	words []string // one of them is in each text that it fits, in lower case
}

// mayFit reports whether p can be in a text, given in lower case. Most texts have none of its words.
func (p pattern) mayFit(lower []byte) bool {
	return slices.ContainsFunc(p.words, func(word string) bool { return bytes.Contains(lower, []byte(word)) })
}

// patterns are what looks like a secret wherever it stands.
var patterns = []pattern{
	{regexp.MustCompile(`(?s)()-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`), []string{"-----begin "}},
	{regexp.MustCompile(`()eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{2,}(?:\.[A-Za-z0-9_-]*)?`), []string{"eyj"}}, // a JSON web token
	{regexp.MustCompile(`(?i)(bearer\s+|authorization:\s*\w+\s+)[A-Za-z0-9+/._~=-]{8,}`), []string{"bearer", "authorization:"}},
	{regexp.MustCompile(`(://[^/\s:@"]*:)[^/\s@"]+@`), []string{"://"}},
	{regexp.MustCompile(`(?i)((?:token|secret|password|passwd|api-?key)["']?\s*[:=]\s*["']?)[^\s"',}(]{6,}`), []string{"token", "secret", "passw", "apikey", "api-key"}},
}

// A Scrubber takes secrets out of text. One goroutine uses it.
type Scrubber struct {
	values []string // longest first, so that what is left of one is not taken for another
	count  int
	lower  []byte // of fold, so that each text has not its own
}

// NewScrubber takes out these values, and what looks like a secret. Values of fewer than six bytes
// are no secrets.
func NewScrubber(values ...string) *Scrubber {
	s := &Scrubber{}
	for _, v := range values {
		v = strings.TrimSpace(v)
		quoted, _ := json.Marshal(v)
		for _, form := range []string{v, string(quoted[1 : len(quoted)-1])} {
			if len(form) >= shortest {
				s.values = append(s.values, form)
			}
		}
		for line := range strings.Lines(v) { // a key of several lines may be logged line by line
			if line = strings.TrimSpace(line); len(line) >= 3*shortest {
				s.values = append(s.values, line)
			}
		}
	}
	slices.SortFunc(s.values, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	s.values = slices.Compact(s.values)
	return s
}

// Text is text without secrets.
func (s *Scrubber) Text(text string) string {
	for _, v := range s.values {
		if n := strings.Count(text, v); n > 0 {
			s.count += n
			text = strings.ReplaceAll(text, v, Gone)
		}
	}
	lower := fold(s, text)
	for _, p := range patterns {
		if !p.mayFit(lower) || !p.form.MatchString(text) {
			continue // and nothing is copied
		}
		text = p.form.ReplaceAllStringFunc(text, func(found string) string {
			s.count++
			kept := p.form.FindStringSubmatch(found)[1]
			if strings.HasSuffix(found, "@") && strings.HasPrefix(kept, "://") {
				return kept + Gone + "@"
			}
			return kept + Gone
		})
	}
	return text
}

// fold is text in lower case, until it is called again.
func fold[T string | []byte](s *Scrubber, text T) []byte {
	s.lower = s.lower[:0]
	for i := range len(text) {
		b := text[i]
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		s.lower = append(s.lower, b)
	}
	return s.lower
}

// Count is how often something was taken out.
func (s *Scrubber) Count() int { return s.count }
