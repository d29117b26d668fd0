// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"sync"

	"github.com/vishvananda/netlink"
)

// An ear hears which addresses come and go, on any device. Two goroutines of the
// library's end with close; one of ours ends after them.
type ear struct {
	done chan struct{}
	news chan<- struct{} // one at a time

	mu    sync.Mutex // guards what follows
	heard []netlink.AddrUpdate
	deaf  bool // there was more than could be heard
}

// most is how many changes are kept. After more, everything is looked at.
const most = 1 << 16

// listen begins to listen in the network namespace of the calling thread.
func listen(news chan<- struct{}) *ear {
	e := &ear{done: make(chan struct{}), news: news}
	updates := make(chan netlink.AddrUpdate, 64)
	options := netlink.AddrSubscribeOptions{ReceiveBufferSize: 8 << 20, ReceiveBufferForceSize: true}
	if netlink.AddrSubscribeWithOptions(updates, e.done, options) != nil {
		e.deaf = true
		return e
	}
	go func() { // ends with close, or when the kernel lost something
		for u := range updates {
			e.note(u)
		}
		e.end()
	}()
	return e
}

func (e *ear) note(u netlink.AddrUpdate) {
	defer e.call()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.heard) == most {
		e.deaf = true
		return
	}
	e.heard = append(e.heard, u)
}

// call says that there is something to hear, if that was not said already.
func (e *ear) call() {
	select {
	case e.news <- struct{}{}:
	default:
	}
}

// end is when the kernel lost some of what it had to tell.
func (e *ear) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deaf = true
}

func (e *ear) take() ([]netlink.AddrUpdate, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	heard := e.heard
	e.heard = nil
	return heard, e.deaf
}

func (e *ear) close() { close(e.done) }
