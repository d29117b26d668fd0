// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
)

// What a host accepts of one answer. A plugin that says more is broken or means
// harm, and must not cost the host its memory: a byte on the wire may become fifty
// in memory, so the small answers are bounded more tightly than grpc could.
const (
	maxReceive         = 3 << 19   // one message; a batch is half a chunk, and an item as much at most
	maxHello           = 64 << 10  // Hello
	maxVitals          = 256 << 10 // Report
	maxHeader          = 64 << 10  // an error, with its detail
	maxSamples         = 1024      // of a Report, and histograms
	maxNotes           = 16        // of a Report
	maxDrops           = 16        // of a Report
	maxWords           = 256       // features, limits, attributes of a log line
	maxAnswer          = 64 << 20  // bytes of a Result, or of a Cleanup's answer
	maxFailures        = 200_000   // of a Result
	maxRemoved         = 200_000   // lines of a Cleanup
	maxAffinityEntries = 500_000   // clients that keep their endpoint
)

// maxMessage bounds a text for people, such as an error's. It travels in a header,
// where a long one would cost the whole answer.
const maxMessage = 4 << 10

// Printable makes what a plugin says fit to be shown: one bounded text without characters
// that would move a terminal's cursor.
func Printable(s string) string { return text(s) }

// text makes s fit to travel, and to be shown: valid UTF-8, because protobuf loses
// a whole message over one bad byte, without characters that would move a
// terminal's cursor, and of bounded length.
func text(s string) string {
	long := len(s) > maxMessage
	s = strings.Map(shown, strings.ToValidUTF8(s[:min(len(s), maxMessage)], "\uFFFD"))
	if long || len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:min(len(s), maxMessage-len("…"))], "") + "…"
	}
	return s
}

// shown returns r, if it may be shown as it is.
func shown(r rune) rune {
	if unicode.IsControl(r) && r != '\n' && r != '\t' {
		return utf8.RuneError
	}
	return r
}

// oneLine returns text that cannot be taken for a line of its own, as in a log.
func oneLine(s string) string { return strings.ReplaceAll(text(s), "\n", " ") }

// first returns at most n of all.
func first[T any](all []T, n int) []T { return all[:min(n, len(all))] }

// texts returns a list's words, fit to be shown.
func texts[S, T ~string](all []T) []S {
	var out []S
	for _, s := range first(all, maxWords) {
		out = append(out, S(oneLine(string(s))))
	}
	return out
}

// chunkSize bounds a message. gRPC takes 4 MiB at most, and ten thousand Services
// do not fit into that.
const chunkSize = 1 << 20

// itemOverhead is more than what a repeated field adds to an item's own size.
const itemOverhead = 8

// A chunker fills one message of a stream after the other.
type chunker[M any] struct {
	send  func(*M) error
	most  int // size of a message
	chunk *M  // that is filled now
	size  int
}

// newReply fills messages that go to a host, which takes in half a chunk at a time.
func newReply[M any](send func(*M) error) *chunker[M] {
	return &chunker[M]{send: send, most: chunkSize / 2, chunk: new(M)}
}

// room makes room for an item in the chunk, which is a new one if need be.
func (c *chunker[M]) room(size int) error {
	size += itemOverhead
	if c.size > 0 && c.size+size > c.most {
		if err := c.flush(); err != nil {
			return err
		}
	}
	c.size += size
	return nil
}

// add puts an item into the list of the chunk that it is for.
func add[M any, P proto.Message](c *chunker[M], item P, list func(*M) *[]P) error {
	if err := c.room(proto.Size(item)); err != nil {
		return err
	}
	into := list(c.chunk)
	*into = append(*into, item)
	return nil
}

// flush sends what is gathered, if anything.
func (c *chunker[M]) flush() error {
	if c.size == 0 {
		return nil
	}
	full := c.chunk
	c.chunk, c.size = new(M), 0
	return c.send(full)
}
