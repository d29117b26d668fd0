// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/test/eventually"
)

// A stream is what a browser reads of the changes.
type stream struct {
	response *http.Response
	lines    *bufio.Scanner
}

// listen begins a stream that ends with ctx.
func listen(t *testing.T, ctx context.Context, url string) stream {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/changes", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return stream{response, bufio.NewScanner(response.Body)}
}

// next returns the version of the next event.
func (s stream) next(t *testing.T) string {
	t.Helper()
	for s.lines.Scan() {
		if version, ok := strings.CutPrefix(s.lines.Text(), "data: "); ok {
			return version
		}
	}
	t.Fatalf("the stream ends: %v", s.lines.Err())
	return ""
}

// serverTimeout is how long the server of these tests lets a request and its answer take. Streams
// outlast it.
const serverTimeout = 2 * time.Second

// liveServer serves the pages of a host that is at revision.
func liveServer(t *testing.T, revision *atomic.Uint64) (*Site, *httptest.Server) {
	t.Helper()
	b := backend()
	b.Status = func() admin.Status { return admin.Status{Sync: admin.Sync{Acked: revision.Load()}} }
	s := New("here", b)
	s.live.each = time.Millisecond
	server := httptest.NewUnstartedServer(s.Handler())
	server.Config.ReadTimeout, server.Config.WriteTimeout = serverTimeout, serverTimeout
	server.Start()
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return s, server
}

// TestChanges sends an event for each change and none without, however long the server's own time
// limits are, and looks for changes only while a page is open.
func TestChanges(t *testing.T) {
	var revision atomic.Uint64
	s, server := liveServer(t, &revision)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first, second := listen(t, ctx, server.URL), listen(t, ctx, server.URL)
	if got := first.response.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("content type %q", got)
	}
	before := first.next(t)
	if other := second.next(t); other != before {
		t.Errorf("two streams begin with %s and %s", before, other)
	}
	time.Sleep(serverTimeout + serverTimeout/2) // that a stream outlasts it is what is tested
	revision.Store(1)
	after := first.next(t)
	if after == before || second.next(t) != after {
		t.Errorf("after a change: %s, before %s", after, before)
	}
	cancel()
	eventually.True(t, "nothing looks once no page is open", func() bool {
		s.live.mu.Lock()
		defer s.live.mu.Unlock()
		return len(s.live.streams) == 0 && s.live.stop == nil
	})
	again := listen(t, t.Context(), server.URL)
	if got := again.next(t); got != after {
		t.Errorf("a later stream begins with %s, not %s", got, after)
	}
}

// TestStreamsAreBounded refuses one stream too many, and has room again when one has ended.
func TestStreamsAreBounded(t *testing.T) {
	_, server := liveServer(t, new(atomic.Uint64))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range mostStreams {
		listen(t, ctx, server.URL).next(t)
	}
	if more := listen(t, t.Context(), server.URL); more.response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one more: %s", more.response.Status)
	}
	cancel()
	eventually.True(t, "there is room again", func() bool { return listen(t, t.Context(), server.URL).response.StatusCode == http.StatusOK })
}

// TestVersion is another one after what a page shows has changed, and only then.
func TestVersion(t *testing.T) {
	b := backend()
	same := version(b.Status(), b.Events())
	if again := version(b.Status(), b.Events()); again != same {
		t.Errorf("nothing has changed, and the version is %x after %x", again, same)
	}
	for what, change := range map[string]func(*admin.Status){
		"revision": func(s *admin.Status) { s.Sync.Acked++ },
		"stage":    func(s *admin.Status) { s.Swap.Stage = "cutting" },
		"swap":     func(s *admin.Status) { s.Swap = nil },
		"last":     func(s *admin.Status) { s.LastSwap = &admin.Swapped{To: "ipvs"} },
		"state":    func(s *admin.Status) { s.Dataplane.State = "waiting" },
		"unserved": func(s *admin.Status) { s.Unserved = nil },
		"warnings": func(s *admin.Status) { s.Warnings = nil },
	} {
		status := b.Status()
		change(&status)
		if version(status, b.Events()) == same {
			t.Errorf("%s has changed, and the version has not", what)
		}
	}
	if version(b.Status(), b.Events()[:1]) == same {
		t.Error("an event came, and the version has not changed")
	}
	status := b.Status()
	status.Dataplane.Memory++
	status.Warnings[0].Text += " 5s ago"
	if version(status, b.Events()) != same {
		t.Error("what changes by itself changes the version")
	}
}

// TestKeptCurrent: what changes by itself has the script, and what is filled in is not replaced by it. A
// list that is long stays as it was asked for.
func TestKeptCurrent(t *testing.T) {
	h := newSite().Handler()
	for path, want := range map[string]bool{"/": true, "/services": true, "/services/shop/web": true, "/plugins": true, "/plugins/iptables/logs": true, "/events": true, "/explain": false, "/nowhere": false} {
		text := get(h, path).Body.String()
		if got := strings.Contains(text, "/static/live.js") && strings.Contains(text, `id="news"`) && strings.Contains(text, " data-live"); got != want {
			t.Errorf("%s is kept current: %v, want %v", path, got, want)
		}
		if inside := strings.Index(text, "<div data-live>"); inside >= 0 && strings.Contains(text[inside:strings.LastIndex(text, "</div>")], "<form") {
			t.Errorf("%s replaces a form while a person fills it in", path)
		}
	}
	long := backend()
	long.Services = func() []admin.Service { return manyServices(mostLive + 1) }
	if text := get(New("here", long).Handler(), "/services").Body.String(); strings.Contains(text, "data-live") {
		t.Error("a long list is loaded again with each change")
	}
	if w := get(h, "/static/live.js"); w.Code != http.StatusOK || !strings.Contains(w.Header().Get("Content-Type"), "javascript") {
		t.Errorf("the script: %d %v", w.Code, w.Header())
	}
}
