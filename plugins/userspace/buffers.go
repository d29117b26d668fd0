// SPDX-License-Identifier: Apache-2.0

package userspace

import "sync"

// A buffer holds what was read once and not yet written. It is as large as the
// largest datagram.
type buffer = [1 << 16]byte

// buffers are lent to whoever has something to read, never to one who waits.
type buffers struct{ pool sync.Pool }

func (b *buffers) lend() *buffer {
	if got, ok := b.pool.Get().(*buffer); ok {
		return got
	}
	return new(buffer)
}

func (b *buffers) giveBack(buf *buffer) { b.pool.Put(buf) }
