// SPDX-License-Identifier: Apache-2.0

package wire

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

// flush sends what is gathered, if anything.
func (c *chunker[M]) flush() error {
	if c.size == 0 {
		return nil
	}
	full := c.chunk
	c.chunk, c.size = new(M), 0
	return c.send(full)
}
