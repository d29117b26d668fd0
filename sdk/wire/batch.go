// SPDX-License-Identifier: Apache-2.0

package wire

// itemOverhead is more than what a repeated field adds to an item's own size.
const itemOverhead = 8

// A batch gathers items and sends them before they grow beyond half a chunk.
type batch[T any] struct {
	send  func([]T) error
	items []T
	size  int
}

func (b *batch[T]) add(item T, size int) error {
	if b.size += size + itemOverhead; b.size > chunkSize/2 && len(b.items) > 0 {
		if err := b.flush(); err != nil {
			return err
		}
		b.size = size + itemOverhead
	}
	b.items = append(b.items, item)
	return nil
}

// flush sends what is gathered, if anything.
func (b *batch[T]) flush() error {
	if len(b.items) == 0 {
		return nil
	}
	items := b.items
	b.items, b.size = nil, 0
	return b.send(items)
}
