// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pointsman/pointsman/configs"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/host/watch"
)

// served returns a tracker of what the manifests in a folder say, read as a host does.
func served(t *testing.T, folder string) *track.Tracker {
	t.Helper()
	complain := func(n track.Notice) { t.Errorf("%+v", n) }
	tracker := track.New(complain)
	tracker.Configure(track.Facts{NodeName: "here", AllowLoopback: true})
	source := watch.Files(folder, tracker, watch.FileSettings{Interval: time.Millisecond, Report: complain})
	for !tracker.HasSynced() {
		source.Look()
		time.Sleep(time.Millisecond) // a file counts once two looks found the same
	}
	return tracker
}

// TestManifests holds what the demo believes of its Services against the
// manifests, read as a host does.
func TestManifests(t *testing.T) {
	folder := t.TempDir()
	manifests, err := fs.Sub(configs.Demo, "demo")
	if err == nil {
		err = os.CopyFS(folder, manifests)
	}
	if err != nil {
		t.Fatal(err)
	}
	tracker := served(t, folder)
	for _, svc := range services() {
		status, ok := tracker.Service(track.Key{Namespace: "demo", Name: svc.name})
		if !ok || len(status.Ports) != 1 {
			t.Errorf("%s: %+v", svc.name, status)
			continue
		}
		port := status.Ports[0].Service
		var want, got []string
		for _, ep := range svc.endpoints {
			want = append(want, ep.addr)
		}
		for _, ep := range port.Cluster {
			got = append(got, ep.Addr.String())
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s has the endpoints %q, want %q", svc.name, got, want)
		}
		if addr := port.Frontends[0].Addr.String(); addr != svc.addr || !strings.EqualFold(svc.network, string(corev1.Protocol(port.Name.Protocol.String()))) {
			t.Errorf("%s is at %s/%s, want %s/%s", svc.name, addr, port.Name.Protocol, svc.addr, svc.network)
		}
	}
}

// TestEdit takes the endpoint from a copy of the manifest, as the demo does.
func TestEdit(t *testing.T) {
	n := network{prefix: "127.80."}
	folder := filepath.Join(t.TempDir(), "services")
	if err := writeManifests(folder, n); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, web.manifest)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), written) {
		t.Errorf("the copy names the network of the original:\n%s", text)
	}
	rest, line, err := withoutLine(string(text), n.at(web.endpoints[2].addr).Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if want := "- addresses: [127.80.1.3]        # web-c"; line != want {
		t.Errorf("took away %q, want %q", line, want)
	}
	if err := os.WriteFile(file, []byte(rest), 0o600); err != nil {
		t.Fatal(err)
	}
	status, _ := served(t, folder).Service(track.Key{Namespace: "demo", Name: web.name})
	if len(status.Ports) != 1 || len(status.Ports[0].Service.Cluster) != len(web.endpoints)-1 {
		t.Errorf("the edited manifest comes to %+v", status)
	}
}

func TestWithoutLine(t *testing.T) {
	for _, tc := range []struct{ text, word, rest, line, err string }{
		{"a 1\nb 2\nc 3\n", "2", "a 1\nc 3\n", "b 2", ""},
		{"a 1\nb 2", "2", "a 1\n", "b 2", ""},
		{"a 1\n", "2", "", "", `0 lines hold "2", want one`},
		{"a 2\nb 2\n", "2", "", "", `2 lines hold "2", want one`},
	} {
		rest, line, err := withoutLine(tc.text, tc.word)
		if rest != tc.rest || line != tc.line || (err != nil || tc.err != "") && fmt.Sprint(err) != tc.err {
			t.Errorf("without %q, %q is %q, %q, %v", tc.word, tc.text, rest, line, err)
		}
	}
}

// TestSum counts apart what the killed plugin explains, and nothing else.
func TestSum(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	g := gap{killed: at(1000), gone: at(1010), back: map[string]time.Time{"web": at(1300)}}
	lost := func(service string, began, ended int) answer {
		return answer{service: service, began: at(began), ended: at(ended), err: errors.New("refused")}
	}
	answered := slices.Concat(slices.Repeat([]answer{{service: "web", from: "web-a"}}, 5), slices.Repeat([]answer{{service: "web", from: "web-b"}}, 4))
	for _, tc := range []struct {
		what                      string
		gap                       gap
		lost                      answer
		failed, inFlight, refused int
	}{
		{"without a kill every failure counts", gap{}, lost("web", 990, 1005), 1, 0, 0},
		{"ended before the kill", g, lost("web", 900, 999), 1, 0, 0},
		{"in flight", g, lost("web", 990, 1005), 0, 1, 0},
		{"in flight, noticed late", g, lost("web", 990, 1990), 0, 1, 0},
		{"turned away", g, lost("web", 1100, 1101), 0, 0, 1},
		{"sent before it was back", g, lost("web", 1299, 1310), 0, 0, 1},
		{"sent after it was back", g, lost("web", 1300, 1310), 1, 0, 0},
		{"a Service that is not back yet", g, lost("clock", 1400, 1410), 0, 0, 1},
	} {
		s := sumUp(append(answered, tc.lost), tc.gap)
		if s.by["web-a"] != 5 || s.by["web-b"] != 4 || len(s.by) != 2 {
			t.Errorf("%s: the endpoints answered %v", tc.what, s.by)
		}
		if len(s.failed) != tc.failed || s.inFlight != tc.inFlight || s.refused != tc.refused || s.requests != 9+tc.failed {
			t.Errorf("%s: %d failed of %d, %d in flight, %d refused", tc.what, len(s.failed), s.requests, s.inFlight, s.refused)
		}
	}
}

// TestBack follows the counts of a load through a kill.
func TestBack(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	var counts load
	served := func(svc service, began int) {
		counts.add(answer{service: svc.name, from: svc.endpoints[0].name, began: at(began), ended: at(began + 5)})
	}
	served(web, 900)
	counts.killing(at(1000))
	served(web, 999) // answered all the same
	counts.gone(at(1010))
	served(web, 1009) // sent while it was dying
	if _, ok := counts.back(); ok {
		t.Fatal("it is back before anything was sent after its end")
	}
	served(web, 1200)
	served(web, 1190)
	if _, ok := counts.back(); ok {
		t.Fatal("it is back before each Service is")
	}
	served(clock, 1150)
	if when, ok := counts.back(); !ok || !when.Equal(at(1195)) {
		t.Errorf("it is back at %v, %t", when, ok)
	}
	// Two requests set out; the later one is quicker, and too early.
	counts.add(answer{service: web.name, began: at(1192), ended: at(1193), err: errors.New("refused")})
	if s := counts.since(0); s.refused != 1 || len(s.failed) != 0 {
		t.Errorf("sent before the first answer, %d refused, failed are %v", s.refused, s.failed)
	}
	if when := counts.last("web-a"); !when.Equal(at(1200)) {
		t.Errorf("web-a was asked last at %v", when)
	}
}

func TestFair(t *testing.T) {
	for _, tc := range []struct {
		counts map[string]int
		err    string
	}{
		{map[string]int{"web-a": 33, "web-b": 34, "web-c": 33}, ""},
		{map[string]int{"web-a": 60, "web-b": 20, "web-c": 20}, ""},
		{map[string]int{"web-a": 70, "web-b": 20, "web-c": 10}, "of 100 requests to web, web-c got 10"},
		{map[string]int{"web-a": 50, "web-b": 50}, "of 100 requests to web, web-c got 0"},
		{nil, "of 0 requests to web, web-a got 0"},
	} {
		if err := fair(web, tc.counts); (err != nil || tc.err != "") && fmt.Sprint(err) != tc.err {
			t.Errorf("%v: %v, want %s", tc.counts, err, tc.err)
		}
	}
}

func TestProcessInUse(t *testing.T) {
	for _, tc := range []struct {
		list string
		pid  int
		err  string
	}{
		{`{"kind":"PluginList","items":[{"name":"ipvs","inUse":false,"pid":3},{"name":"userspace","inUse":true,"pid":7}]}`, 7, ""},
		{`{"items":[{"name":"userspace","inUse":true}]}`, 0, "no plugin runs"},
		{`{"items":[]}`, 0, "no plugin runs"},
		{`no JSON`, 0, "read the list of plugins"},
	} {
		pid, err := processInUse([]byte(tc.list))
		if pid != tc.pid || (err != nil || tc.err != "") && !strings.HasPrefix(fmt.Sprint(err), tc.err) {
			t.Errorf("%s: %d, %v", tc.list, pid, err)
		}
	}
}

// TestBars is the picture that a user sees.
func TestBars(t *testing.T) {
	got := strings.Join(bars(map[string]int{"web-a": 100, "web-b": 50, "web-c": 1, "clock-a": 25}), "\n")
	want := strings.Join([]string{
		"web    web-a     100  ████████████████████████████████",
		"       web-b      50  ████████████████",
		"       web-c       1  █",
		"clock  clock-a    25  ████████",
		"       clock-b     0",
	}, "\n")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestServers asks the servers themselves, as the load does through Services.
func TestServers(t *testing.T) {
	n, err := claim()
	if err != nil {
		t.Skip("needs all addresses of 127.0.0.0/8, which Linux has: ", err)
	}
	defer n.guard.Close()
	other, err := claim()
	if err != nil || other.prefix == n.prefix {
		t.Fatalf("two demos at a time have %s and %s: %v", n.prefix, other.prefix, err)
	}
	other.guard.Close()
	servers, err := serve(n)
	for _, s := range servers {
		defer s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	l := newLoad(n)
	for _, svc := range services() {
		for _, ep := range svc.endpoints {
			svc.addr = ep.addr
			if a := l.request(svc); a.err != nil || a.from != ep.name {
				t.Errorf("%s answers as %q: %v", ep.name, a.from, a.err)
			}
		}
	}
	nobody := web
	nobody.addr = "127.77.1.9:7781"
	if a := l.request(nobody); a.err == nil {
		t.Error("a request to nobody is answered")
	}
	stranger := web
	stranger.addr, stranger.endpoints = web.endpoints[0].addr, web.endpoints[1:]
	if a := l.request(stranger); a.err == nil || !strings.Contains(a.err.Error(), "another program answers") {
		t.Errorf("an answer that is not from an endpoint of the Service counts: %v", a.err)
	}
}

func TestEnvironment(t *testing.T) {
	got := environment([]string{"HOME=/root", "POINTSMAN_MODE=ipvs", "PATH=/bin"})
	if !slices.Equal(got, []string{"HOME=/root", "PATH=/bin"}) {
		t.Errorf("%q", got)
	}
}

// TestMayAskAgain: a swap that a busy machine had undone is asked for again, and no other.
func TestMayAskAgain(t *testing.T) {
	for why, want := range map[string]bool{
		"the swap to ipvs was undone, and iptables serves on: updates were held back for 4.5s, and cutting was not done; ipvs goes on draining": true,
		"the swap to ipvs was undone, and iptables serves on: updates may be held back for 4.5s at most: promote: context canceled":             true,
		"the swap to ipvs was undone, and iptables serves on: staging took longer than 5m0s":                                                    true,
		"the swap to ipvs was undone, and iptables serves on: verifying did not get on for 30s":                                                 true,
		"the swap to ipvs was undone, and iptables serves on: Sync gets on no more: it has run for 9s, and waits for nothing":                   true,
		"another swap is under way": true,
		"the swap to ipvs was undone, and iptables serves on: the canary failed: 127.77.0.10:7780: connection refused": false,
		"no dataplane is called ipsv": false,
	} {
		if got := mayAskAgain(why); got != want {
			t.Errorf("%q: asked again: %t, want %t", why, got, want)
		}
	}
}
