// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
)

// A deadlined answer notes what is written at once, and whether there was a deadline for it.
type deadlined struct {
	header                         http.Header
	set                            bool
	all, largest, parts, boundless int
}

func (d *deadlined) Header() http.Header { return d.header }
func (d *deadlined) WriteHeader(int)     {}

func (d *deadlined) SetWriteDeadline(at time.Time) error {
	d.set = time.Until(at) > 0 && time.Until(at) <= 10*time.Second
	return nil
}

func (d *deadlined) Write(text []byte) (int, error) {
	d.all, d.largest, d.parts = d.all+len(text), max(d.largest, len(text)), d.parts+1
	if !d.set {
		d.boundless++
	}
	d.set = false
	return len(text), nil
}

// TestPagesAreStreamed: pages of two thousand Services with ten endpoints each, and of as many events, are written
// in small parts, and each part of them has a deadline.
func TestPagesAreStreamed(t *testing.T) {
	services, events := manyServices(2000), make([]admin.Event, 2000)
	b := backend()
	b.Services = func() []admin.Service { return services }
	b.Events = func() []admin.Event { return events }
	h := New("here", b).Handler()
	for path, least := range map[string]int{"/services": 50 << 10, "/services?state=served&from=1000": 50 << 10, "/events": 200 << 10, "/": 1 << 10, "/services/shop/web": 1 << 10, "/plugins": 1 << 10, "/static/style.css": 1 << 10, "/none": 100} {
		d := &deadlined{header: http.Header{}}
		h.ServeHTTP(d, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil))
		if d.all < least || d.largest > 64<<10 || d.boundless > 0 {
			t.Errorf("%s: %d bytes in %d parts, at most %d at once, %d without a deadline", path, d.all, d.parts, d.largest, d.boundless)
		}
	}
}

// A gone caller reads nothing more after the first part.
type gone struct{ deadlined }

func (g *gone) Write(text []byte) (int, error) {
	if g.parts > 0 {
		g.boundless++
		return 0, http.ErrHandlerTimeout
	}
	return g.deadlined.Write(text)
}

// TestAnswerEndsWithItsCaller: no more of a page is put together when a part of it was not read.
func TestAnswerEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	g := &gone{deadlined{header: http.Header{}}}
	b := backend()
	b.Services = func() []admin.Service { return manyServices(2000) }
	New("here", b).Handler().ServeHTTP(g, httptest.NewRequest(http.MethodGet, "http://localhost/services", nil))
	if g.parts != 1 || g.boundless != 1 {
		t.Errorf("%d parts were read, and %d more were written", g.parts, g.boundless)
	}
}
