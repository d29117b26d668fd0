// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// inParts is a text without secrets, that came in parts of random sizes.
func inParts(t *testing.T, s *Scrubber, random *rand.Rand, text string, window, chunk int) string {
	t.Helper()
	var out bytes.Buffer
	w := newScrubbing(s, &out, window, chunk)
	for len(text) > 0 {
		n := min(len(text), 1+random.IntN(300))
		if _, err := io.WriteString(w, text[:n]); err != nil {
			t.Fatal(err)
		}
		text = text[n:]
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// secretTexts are known values, what looks like a secret, and what does not.
var secretTexts = []string{
	"swordfish", "two\nlines of it", "swordfish-and-more", "plain words", "\n", " ", "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJr.c2ln-_",
	"Bearer abcdefghij", "Authorization: Basic dXNlcjpwYXNz", "https://me:pa55@10.0.0.1:6443", "password=correcthorse", `"TOKEN": "0123456789"`,
	"-----BEGIN RSA PRIVATE KEY-----\nMIIE\nMIIF\n-----END RSA PRIVATE KEY-----", "10.96.0.1:80", "shop/web:http/tcp4", "password", "http://",
}

// TestSecretsAcrossChunks: whichever way a text is cut into parts and chunks, the same is taken out of it as
// if it were whole.
func TestSecretsAcrossChunks(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 8))
	for round := range 25 {
		var text strings.Builder
		for range random.IntN(400) {
			text.WriteString(secretTexts[random.IntN(len(secretTexts))])
			text.WriteString(strings.Repeat(".", random.IntN(40)) + []string{"", " ", "\n"}[random.IntN(3)])
		}
		whole, parted := NewScrubber("swordfish", "two\nlines of it", "swordfish-and-more"), NewScrubber("swordfish", "two\nlines of it", "swordfish-and-more")
		want := whole.Text(text.String())
		got := inParts(t, parted, random, text.String(), 600, 1200+random.IntN(600))
		if got != want || parted.Count() != whole.Count() {
			t.Fatalf("round %d: of %q\nin parts is left %q, %d taken out\nof the whole is left %q, %d taken out", round, text.String(), got, parted.Count(), want, whole.Count())
		}
	}
}

// TestSecretAtEachBorder moves one secret over the border of a chunk, byte by byte.
func TestSecretAtEachBorder(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 8))
	for at := 1190; at < 1810; at++ {
		if at == 1205 { // that was the end of the first part that is passed on; next is that of a chunk
			at = 1785
		}
		text := strings.Repeat(".", at) + "swordfish" + strings.Repeat(".", 3000)
		if got := inParts(t, NewScrubber("swordfish"), random, text, 600, 1200); strings.Contains(got, "sword") || strings.Contains(got, "fish") || strings.Count(got, Gone) != 1 {
			t.Fatalf("at %d it is left: %q", at, got)
		}
	}
}

// TestLongSecrets: of secrets that are longer than what is held nothing is left, and what follows stays.
func TestLongSecrets(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 8))
	long := strings.Repeat("A1b2", 5_000)
	for text, want := range map[string]string{
		"Bearer " + long + " is refused":                                              "Bearer (secret) is refused",
		"password=" + long + ", user=me":                                              "password=(secret), user=me",
		"dial https://me:" + long + "@host:1":                                         "dial https://me:(secret)@host:1",
		"is eyJ" + long + "." + long + " again":                                       "is (secret) again",
		"-----BEGIN PRIVATE KEY-----\n" + long + "\n-----END PRIVATE KEY-----\nafter": "(secret)\nafter",
		"-----BEGIN PRIVATE KEY-----\n" + long:                                        "(secret)",
	} {
		window := 600
		if strings.Contains(text, "eyJ") || strings.Contains(text, "://") { // neither is one without its end
			window = len(long) + 600
		}
		if got := inParts(t, NewScrubber(), random, text, window, 3*window); got != want {
			t.Errorf("%.60q… becomes %.200q; want %q", text, got, want)
		}
	}
	var endless bytes.Buffer
	w := newScrubbing(NewScrubber(), &endless, 600, 1200)
	for range 3000 { // two patterns that overlap again and again
		if _, err := io.WriteString(w, "bearer token="); err != nil {
			t.Fatal(err)
		}
	}
	if cap(w.text) > 2*1800 || endless.Len() == 0 {
		t.Errorf("%d bytes are held, and %d passed on", cap(w.text), endless.Len())
	}
}

// TestMembersAreStreamed: what a source writes, with secrets in it, is in the file before the source has ended,
// but for a part that does not grow.
func TestMembersAreStreamed(t *testing.T) {
	t.Parallel()
	const lines, secrets, most = 8000, 8, 256 << 10
	file := temporary(t)
	a := NewArchive(file, NewScrubber("swordfish"), time.Unix(0, 0))
	random := rand.New(rand.NewPCG(1, 8))
	err := a.AddFrom(t.Context(), "large", func(_ context.Context, w io.Writer) error {
		for i := range lines {
			if i%(lines/secrets) == 0 {
				_, _ = io.WriteString(w, "swordfish")
			}
			// Each digit is four bits, so that what is compressed has half as many bytes at least.
			if _, err := fmt.Fprintf(w, "%016x%016x%016x%015x\n", random.Uint64(), random.Uint64(), random.Uint64(), random.Uint64()>>4); err != nil {
				return err
			}
			if i%1000 != 0 {
				continue
			}
			if info, err := file.Stat(); err != nil || info.Size() < int64(i*64-most)/2 {
				t.Errorf("of %d bytes that were written %d are in the file: %v", i*64, info.Size(), err)
			}
		}
		return nil
	})
	m, closed := a.Close("v1")
	if err != nil || closed != nil || m.Members[0] != (Member{"large", lines*64 + secrets*len(Gone), ""}) || m.Scrubbed != secrets {
		t.Fatalf("%+v: %v, %v", m, err, closed)
	}
}

// TestSources: a source that hangs, or goes on without end, ends with its deadline, and one that fails with
// its error; what it had written by then is kept. The others are whole.
func TestSources(t *testing.T) {
	t.Parallel()
	file := temporary(t)
	a := NewArchive(file, NewScrubber("swordfish", "two\nlines of it"), time.Unix(0, 0))
	hung := make(chan struct{})
	defer close(hung)
	for name, source := range map[string]func(late func(error), w io.Writer) error{
		"hangs": func(late func(error), _ io.Writer) error { late(context.DeadlineExceeded); <-hung; return nil },
		"begins": func(late func(error), w io.Writer) error {
			fmt.Fprint(w, "as far as this\nand sword") // is read when this returns
			late(context.DeadlineExceeded)
			<-hung
			return nil
		},
		"endless": func(late func(error), w io.Writer) (err error) {
			for n := 0; err == nil; n++ {
				if _, err = fmt.Fprint(w, "and on\n"); n == 1000 {
					late(context.DeadlineExceeded)
				}
			}
			return err
		},
	} {
		ctx, late := context.WithCancelCause(t.Context())
		if err := a.AddFrom(ctx, name, func(_ context.Context, w io.Writer) error { return source(late, w) }); err != nil {
			t.Fatal(err)
		}
		late(nil)
	}
	ctx := t.Context()
	for name, source := range map[string]func(context.Context, io.Writer) error{
		"fails": func(context.Context, io.Writer) error { return errors.New("swordfish is wrong") },
		"breaks": func(_ context.Context, w io.Writer) error {
			fmt.Fprint(w, "half of it\nswordfish\ntwo\n")
			return errors.New("broken off")
		},
		"whole":                                  func(_ context.Context, w io.Writer) error { fmt.Fprint(w, "sword"); fmt.Fprint(w, "fish"); return nil },
		"empty":                                  func(context.Context, io.Writer) error { return nil },
		strings.Repeat("a-long-name/", 30) + "x": func(_ context.Context, w io.Writer) error { fmt.Fprint(w, "x"); return nil },
	} {
		if err := a.AddFrom(ctx, name, source); err != nil {
			t.Fatal(err)
		}
	}
	m, err := a.Close("v1")
	if err != nil {
		t.Fatal(err)
	}
	said := make(map[string]string)
	for _, member := range m.Members {
		said[member.Name] = member.Error
	}
	members := opened(t, file)
	const late = "it took too long, or was stopped: context deadline exceeded"
	for name, want := range map[string]string{"hangs": late, "begins": late, "endless": late, "fails": "(secret) is wrong", "breaks": "broken off", "whole": "", "empty": ""} {
		if said[name] != want {
			t.Errorf("of %s is said %q; want %q", name, said[name], want)
		}
	}
	_, hangs := members["hangs"]
	_, fails := members["fails"]
	_, empty := members["empty"]
	if hangs || fails || !empty || members["begins"] != "as far as this\n" || !strings.HasPrefix(members["endless"], "and on\nand on\nand on\n") || members["breaks"] != "half of it\n(secret)\n" || members["whole"] != Gone || members[strings.Repeat("a-long-name/", 30)+"x"] != "x" {
		t.Errorf("%d members: %.60q", len(members), members)
	}
}
