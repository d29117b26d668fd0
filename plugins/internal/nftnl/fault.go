// SPDX-License-Identifier: Apache-2.0

package nftnl

import (
	"fmt"
	"strings"
	"syscall"
)

// A Fault is the reason why the kernel refused the operations First to Last of a batch. In a message with
// several elements only the first bad one is known.
type Fault struct {
	First, Last int
	Errno       syscall.Errno
	Text        string // the kernel's message, often empty
}

// Faults are all faults of a batch. The kernel has undone the whole batch.
type Faults []Fault

func (all Faults) Error() string {
	f := all[0]
	text := fmt.Sprintf("nftables: operation %d: %s", f.First, f.Errno)
	if f.Text != "" {
		text += ": " + f.Text
	}
	if len(all) > 1 {
		text += fmt.Sprintf(" (and %d more)", len(all)-1)
	}
	return text
}

// Is reports whether one of the faults is target.
func (all Faults) Is(target error) bool {
	for _, f := range all {
		if f.Errno == target {
			return true
		}
	}
	return false
}

// Attributes of an answer (enum nlmsgerr_attrs), and the flag NLM_F_ACK_TLVS, with which it has attributes.
const (
	ackText, ackOffset = 1, 2
	ackAttrs           = 0x200
)

// readAnswer parses an NLMSG_ERROR that has only the header of the request (NETLINK_CAP_ACK): the errno (0 for
// success), the sequence number of the message, and the offset of the bad attribute in that message, or 0.
func readAnswer(flags uint16, body []byte) (errno syscall.Errno, seq uint32, offset int, text string, ok bool) {
	const inner = 4 // the header of the message follows the errno
	if len(body) < inner+16 {
		return 0, 0, 0, "", false
	}
	errno, seq = syscall.Errno(-int32(native.Uint32(body))), native.Uint32(body[inner+8:])
	if rest := body[inner+16:]; flags&ackAttrs != 0 {
		text = strings.TrimSpace(getText(attr(rest, ackText)))
		if v := attr(rest, ackOffset); len(v) == 4 {
			offset = int(native.Uint32(v))
		}
	}
	return errno, seq, offset, text, true
}
