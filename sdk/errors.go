// SPDX-License-Identifier: Apache-2.0

package sdk

import "errors"

// ErrResync is what Sync returns when an Update does not lead on from what the
// dataplane has: it missed one, or its session is new. The host answers with a
// Full. It survives the wire.
var ErrResync = errors.New("resync: a full update is needed")

// A Refusal says that this node cannot do what was asked, and that asking again
// will not help until the node, a file or the binary changes: a kernel module is
// missing, an option is wrong, a protocol is not supported. Every other error is
// retried with backoff. It survives the wire.
type Refusal struct {
	Field string // what was asked: an option's path, or a field of a Service; may be empty
	Why   string // what is wrong with it here
	Try   string // the command or the change that would help; may be empty
}

func (r *Refusal) Error() string {
	s := r.Why
	if r.Field != "" {
		s = r.Field + ": " + s
	}
	if r.Try != "" {
		s += "; try: " + r.Try
	}
	return s
}
