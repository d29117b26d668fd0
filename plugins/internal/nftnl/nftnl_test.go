// SPDX-License-Identifier: Apache-2.0

package nftnl

import (
	"encoding/hex"
	"strings"
	"testing"
)

// TestBytes checks the encoding of a batch of two elements on a little-endian machine.
func TestBytes(t *testing.T) {
	if native.Uint16([]byte{1, 0}) != 1 {
		t.Skip("needs a little-endian machine")
	}
	b := NewBatch(IPv6, "t")
	b.Add("s", Element{Key: "\x01\x02\x03\x04", Comment: "c"})
	b.Add("s", Element{Key: "\x05\x06\x07\x08", Data: "\x09"})
	got := hex.EncodeToString(b.bytes(100))
	want := strings.NewReplacer(" ", "", "\n", "", "\t", "").Replace(`
		14000000 1000 0100 64000000 00000000 0a 00 000a
		5c000000 0c0a 0504 65000000 00000000 0a 00 0000
		  0600 0100 74000000
		  0600 0200 73000000
		  3800 0380
		    1800 0180
		      0c00 0180 0800 0100 01020304
		      0800 0600 00 02 6300
		    1c00 0180
		      0c00 0180 0800 0100 05060708
		      0c00 0280 0500 0100 09000000
		14000000 1100 0100 66000000 00000000 0a 00 000a`)
	if got != want {
		t.Errorf("the batch is\n%s\nwant\n%s", got, want)
	}
	if first, last := b.operations(1, 0); first != 0 || last != 1 {
		t.Errorf("a fault of a message has operations %d to %d", first, last)
	}
	second := strings.Index(got, "05060708")/2 - 20
	if first, last := b.operations(1, second-9); first != 1 || last != 1 {
		t.Errorf("a fault in the second element has operations %d to %d", first, last)
	}
	if first, last := b.operations(0, 0); first != 0 || last != 1 {
		t.Errorf("a fault of the batch has operations %d to %d", first, last)
	}
}

// FuzzRead: for any input, the parsers end and read nothing beyond the input.
func FuzzRead(f *testing.F) {
	f.Add([]byte("\x0c\x00\x01\x80\x08\x00\x01\x00\x0a\x00\x00\x01"))
	f.Add([]byte("\xfe\xff\xff\xff\x14\x00\x00\x00\x0c\x0a\x05\x04\x65\x00\x00\x00\x00\x00\x00\x00\x08\x00\x02\x00\x30\x00\x00\x00"))
	f.Add([]byte(nest(1, value(1, "key"), num64(5, 9), text(6, "\x00\x02c"))))
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = readElement(b)
		for _, flags := range []uint16{0, ackAttrs} {
			if _, _, offset, text, ok := readAnswer(flags, b); ok && (offset < 0 || len(text) > len(b)) {
				t.Errorf("%x is read as offset %d, text %q", b, offset, text)
			}
		}
		n := 0
		eachAttr(b, func(_ uint16, v []byte) { n += attrHeader + len(v) })
		if n > len(b) {
			t.Errorf("%x has %d bytes of attributes", b, n)
		}
	})
}
