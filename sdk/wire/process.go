// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// A Process is the process behind a Remote, as the code that started or found it sees it. A
// call that fails because the process has ended says so, and how it ended.
type Process interface {
	PID() int                // zero: not known
	Exited() <-chan struct{} // closed when it has ended
	Ending() string          // how it ended, without the subject: "exited with code 2"; asked once Exited is closed
}

// ended reports whether the process has ended, after waiting for that at most d and no
// longer than ctx.
func (r *Remote) ended(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-r.process.Exited():
	case <-timer.C:
	case <-ctx.Done():
	}
	select {
	case <-r.process.Exited():
		return true
	default:
		return false
	}
}

// An unseen process is known by its connection alone: it counts as ended when that is
// lost.
type unseen struct {
	exited chan struct{}
	ending string // written before exited is closed
	cancel context.CancelFunc
}

func newUnseen() *unseen { return &unseen{exited: make(chan struct{}), cancel: func() {}} }

func (*unseen) PID() int                  { return 0 }
func (u *unseen) Exited() <-chan struct{} { return u.exited }
func (u *unseen) Ending() string          { return u.ending }

// end says that the process has ended, and how. It is called once.
func (u *unseen) end(how string) {
	u.ending = how
	close(u.exited)
}

// follow starts a goroutine that ends with the connection, or when cancel is called.
func (u *unseen) follow(conn *grpc.ClientConn) {
	ctx, cancel := context.WithCancel(context.Background())
	u.cancel = cancel
	go func() {
		for state := conn.GetState(); ; state = conn.GetState() {
			if state != connectivity.Ready {
				u.end("ended, as far as can be seen from here: the connection to it was lost")
				return
			}
			if !conn.WaitForStateChange(ctx, state) {
				return
			}
		}
	}()
}
