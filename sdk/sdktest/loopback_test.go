// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// TestLoopback sends real packets to a simple relay, which declares limits.
func TestLoopback(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs all of 127.0.0.0/8 on the loopback interface")
	}
	report, err := Check(t.Context(), InProcess(relayDescription, newRelay), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !report.Conforms() {
		t.Error(report)
	}
	for _, f := range report.Findings {
		t.Log(f)
	}
	if n := report.Count(Pass) + report.Count(Limit); n < 60 {
		t.Errorf("only %d checks ran", n)
	}
}

// TestLoopbackWithoutCloseOrInspect: the end of a life in this process removes what the dataplane
// serves, even if it has no Close, and a dataplane without Inspect is checked with packets.
func TestLoopbackWithoutCloseOrInspect(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs all of 127.0.0.0/8 on the loopback interface")
	}
	s := InProcess(relayDescription, func() sdk.Dataplane { return struct{ sdk.Dataplane }{newRelay()} })
	s.Only = regexp.MustCompile("^(C05/ten-thousand-services|C06/restart|C07/draining-keeps-established|C08/.*)$").MatchString
	report, err := Check(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := report.Count(Pass) + report.Count(Limit); n != 5 || len(report.Findings) != 5 {
		t.Errorf("%d pass: %s", n, report)
	}
}

// TestLoopbackBites: a relay that accepts every caller fails the right checks.
func TestLoopbackBites(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs all of 127.0.0.0/8 on the loopback interface")
	}
	open := func() sdk.Dataplane { r := newRelay().(*relay); r.open = true; return r }
	report, err := Check(t.Context(), InProcess(relayDescription, open), nil)
	if err != nil {
		t.Fatal(err)
	}
	var failed []string
	for _, f := range report.Findings {
		if f.Status == Fail {
			failed = append(failed, f.Check)
		}
	}
	for _, check := range failed {
		if !strings.HasPrefix(check, "C01/scenario/source-ranges") && check != "C01/scenario/one-address-twice" {
			t.Errorf("a relay without source ranges fails %s", check)
		}
	}
	if !slices.Contains(failed, "C01/scenario/source-ranges") {
		t.Errorf("a relay without source ranges fails only %v", failed)
	}
}

// TestLoopbackSwapBites: a relay that loses connections in a swap fails, with the reason.
func TestLoopbackSwapBites(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs all of 127.0.0.0/8 on the loopback interface")
	}
	for _, c := range []struct {
		name   string
		breaks func(*relay)
		want   string
	}{
		{"nothing", func(*relay) {}, ""},
		{"listens alone", func(r *relay) { r.alone = true }, "SO_REUSEPORT"},
		{"does not listen again", func(r *relay) { r.late = true }, "swapped back to the first: a new connection, "},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := InProcess(relayDescription, func() sdk.Dataplane { r := newRelay().(*relay); c.breaks(r); return r })
			f := find(t, s, "C07/swap-under-load")
			if (f.Status == Pass) != (c.want == "") || !strings.Contains(f.Reason, c.want) {
				t.Errorf("%s, want %q", f, c.want)
			}
		})
	}
}

var relayDescription = sdk.Description{
	Name: "relay", Version: "1",
	Features: []sdk.Feature{sdk.FeatureIPv4, sdk.FeatureIPv6, sdk.FeatureNodePort, sdk.FeatureLocalPolicy, sdk.FeatureSourceRanges},
	Limits: []sdk.Limit{
		sdk.LimitNoDrop, sdk.LimitNoClientAddress, sdk.LimitAffinityPerFrontend, sdk.LimitOwnAddressesOnly, sdk.LimitDiesWithProcess,
	},
}

// A relay serves TCP by listening on the frontends' own addresses.
type relay struct {
	Recorder
	open  bool // a mistake: no caller is rejected
	alone bool // a mistake: it listens only where nothing else does
	late  bool // a mistake: made Active again, it does not listen

	mu        sync.Mutex // guards listeners and next
	listeners map[netip.AddrPort]*listening
	next      int
}

// A listening socket accepts on a goroutine, until its deadline.
type listening struct {
	*net.TCPListener
	done chan struct{} // closed when that has ended
}

func newRelay() sdk.Dataplane {
	r := &relay{listeners: make(map[netip.AddrPort]*listening)}
	r.Describe = relayDescription
	r.Fail = ownAddresses
	return r
}

// ownAddresses refuses a Service that the loopback interface has no address for.
func ownAddresses(s sdk.Service) error {
	for _, f := range s.Frontends {
		if addr := f.Addr.Addr(); !addr.IsLoopback() && !addr.IsUnspecified() {
			return &sdk.Refusal{Field: "frontends", Why: "no interface has " + addr.String()}
		}
	}
	return nil
}

func (r *relay) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	result, err := r.Recorder.Sync(ctx, u)
	return result, errors.Join(err, r.listen())
}

func (r *relay) SetRole(ctx context.Context, role sdk.Role) error {
	if r.late && r.Role() == sdk.Draining {
		return r.Recorder.SetRole(ctx, role)
	}
	return errors.Join(r.Recorder.SetRole(ctx, role), r.listen())
}

func (r *relay) Cleanup(ctx context.Context, l sdk.Leftovers) ([]string, error) {
	names, err := r.Recorder.Cleanup(ctx, l)
	return names, errors.Join(err, r.listen())
}

// Close ends the relay, as the end of a process does.
func (r *relay) Close() error {
	return r.SetRole(context.Background(), sdk.Standby)
}

// listen opens and closes listeners until they match the desired state.
func (r *relay) listen() error {
	want := make(map[netip.AddrPort]bool)
	if r.Role() == sdk.Active {
		for _, s := range r.Services() {
			for _, f := range s.Frontends {
				for _, at := range r.places(f) {
					want[at] = len(s.Cluster) > 0
				}
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var closing []*listening
	for at, l := range r.listeners {
		if !want[at] {
			_ = l.SetDeadline(time.Now().Add(20 * time.Millisecond)) // what waits in it is accepted: the kernel would reset it
			closing = append(closing, l)
			delete(r.listeners, at)
		}
	}
	for _, l := range closing {
		<-l.done
	}
	for at, serves := range want {
		if serves && r.listeners[at] == nil {
			lc := net.ListenConfig{Control: reusePort}
			if r.alone {
				lc.Control = nil
			}
			l, err := lc.Listen(context.Background(), "tcp", at.String())
			if err != nil {
				return err
			}
			r.listeners[at] = &listening{l.(*net.TCPListener), make(chan struct{})}
			go r.accept(r.listeners[at], at) // ends with its deadline
		}
	}
	return nil
}

// places returns the addresses on which f must be served.
func (r *relay) places(f sdk.Frontend) []netip.AddrPort {
	if !f.Addr.Addr().IsUnspecified() {
		return []netip.AddrPort{f.Addr}
	}
	var all []netip.AddrPort
	node := r.Node()
	for _, a := range node.Addrs {
		if node.TakesNodePorts(a) && sdk.FamilyOf(a) == sdk.FamilyOf(f.Addr.Addr()) {
			all = append(all, netip.AddrPortFrom(a, f.Addr.Port()))
		}
	}
	return all
}

func (r *relay) accept(l *listening, at netip.AddrPort) {
	defer close(l.done)
	defer l.Close()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go r.relay(conn, at) // ends when either side does
	}
}

func (r *relay) relay(conn net.Conn, at netip.AddrPort) {
	defer conn.Close()
	from := sdk.Caller{Addr: conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()}
	node := r.Node()
	switch {
	case slices.Contains(node.Addrs, from.Addr):
		from.From = sdk.OnNode
	case node.Pods.Contains(from.Addr, ""):
		from.From = sdk.OnPod
	}
	svc, f, _ := Find(slices.Values(r.Services()), node, at, sdk.TCP)
	if r.open {
		f.Sources = nil
	}
	route := svc.Route(f, from, node)
	if route.Verdict != sdk.Forward {
		return
	}
	r.mu.Lock()
	r.next++
	ep := route.Endpoints[r.next%len(route.Endpoints)]
	r.mu.Unlock()
	to, err := net.Dial("tcp", ep.Addr.String())
	if err != nil {
		return
	}
	defer to.Close()
	go io.Copy(to, conn)
	_, _ = io.Copy(conn, to)
}
