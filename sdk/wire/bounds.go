// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
)

// Limits on one response of a plugin. A plugin that sends more is broken or malicious, and must
// not exhaust the host's memory: a byte on the wire may become fifty bytes in memory, so small
// responses have tighter limits than gRPC has.
const (
	maxReceive         = 3 << 19   // one message; a batch is half a chunk, and an item at most as much
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

// maxMessage limits a text for people, such as that of an error. It is sent in a header, where
// too long a text would cost the whole response.
const maxMessage = 4 << 10

// Printable makes a plugin's text safe to send and to print: valid UTF-8, because protobuf rejects
// a whole message for one invalid byte; without characters that move a terminal's cursor; and of
// limited length.
func Printable(s string) string {
	long := len(s) > maxMessage
	s = strings.Map(replaceControl, strings.ToValidUTF8(s[:min(len(s), maxMessage)], "\uFFFD"))
	if long || len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:min(len(s), maxMessage-len("…"))], "") + "…"
	}
	return s
}

// replaceControl returns r, or U+FFFD if r is a control character other than a newline or tab.
func replaceControl(r rune) rune {
	if unicode.IsControl(r) && r != '\n' && r != '\t' {
		return utf8.RuneError
	}
	return r
}

// oneLine returns text without newlines, which could fake lines of a log.
func oneLine(s string) string { return strings.ReplaceAll(Printable(s), "\n", " ") }

// first returns at most the first n elements of all.
func first[T any](all []T, n int) []T { return all[:min(n, len(all))] }

// texts returns at most maxWords elements of a list, each made safe to print on one line.
func texts[S, T ~string](all []T) []S {
	var out []S
	for _, s := range first(all, maxWords) {
		out = append(out, S(oneLine(string(s))))
	}
	return out
}

// chunkSize limits the size of a message. gRPC accepts 4 MiB at most, which is not enough for
// ten thousand Services.
const chunkSize = 1 << 20

// itemOverhead is an upper limit of what a repeated field adds to an item's own size.
const itemOverhead = 8

// A chunker distributes items over the messages of a stream.
type chunker[M any] struct {
	send  func(*M) error
	most  int // maximum size of a message
	chunk *M  // the current message
	size  int
}

// newReply returns a chunker for messages to a host, which accepts half a chunk at a time.
func newReply[M any](send func(*M) error) *chunker[M] {
	return &chunker[M]{send: send, most: chunkSize / 2, chunk: new(M)}
}

// add appends an item to its list in the chunk, and sends the chunk before if it has no room.
func add[M any, P proto.Message](c *chunker[M], item P, list func(*M) *[]P) error {
	size := proto.Size(item) + itemOverhead
	if c.size > 0 && c.size+size > c.most {
		if err := c.flush(); err != nil {
			return err
		}
	}
	c.size += size
	into := list(c.chunk)
	*into = append(*into, item)
	return nil
}

// flush sends the current chunk, unless it is empty.
func (c *chunker[M]) flush() error {
	if c.size == 0 {
		return nil
	}
	full := c.chunk
	c.chunk, c.size = new(M), 0
	return c.send(full)
}
