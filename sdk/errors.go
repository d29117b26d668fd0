// SPDX-License-Identifier: Apache-2.0

package sdk

import "errors"

// ErrResync is returned by Sync if an Update does not continue from the dataplane's state: it
// missed an update, or its session is new. The host answers with a Full. ErrResync is preserved
// across the wire.
var ErrResync = errors.New("resync: a full update is needed")

// A Refusal means that this node cannot do what was requested, and that a retry will not help
// until the node, a file or the binary changes: a kernel module is missing, an option is wrong,
// a protocol is not supported. Every other error is retried with backoff. A Refusal is
// preserved across the wire.
type Refusal struct {
	Field string // what was requested: the path of an option, or a field of a Service; may be empty
	Why   string // the reason
	Try   string // a command or change that would help; may be empty
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
