// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"time"
)

// A Counter can say what traffic Services have had, as far as that is counted anyway: by the kernel, or
// by a relay itself. It calls the function once for each Service that is served and counted, in any order,
// and stops with the first error that the function returns.
//
// Count is called only where it is asked for, at most once a second, and may run beside another call, as
// Inspect may; no call waits for it. A dataplane that could count, and is not set to, returns a *Refusal
// that says by which option.
type Counter interface {
	Count(context.Context, func(Traffic) error) error
}

// A Traffic is what one Service has had since a time.
type Traffic struct {
	Name Name

	// Since is when counting began. While it stays the same no count falls; where counts begin
	// anew, as with another process, it is another.
	Since time.Time

	Connections uint64 // that were led to an endpoint; of UDP, flows
	Bytes       bool   // BytesIn and BytesOut are counted; else they are zero
	BytesIn     uint64 // from callers
	BytesOut    uint64 // to callers
}
