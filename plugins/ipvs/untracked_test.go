// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// Report counts the established connections that conntrack does not know until they have ended, also in a restarted
// process. It does not count tracked connections, closing connections or those of other programs.
func TestReportsUntrackedConnections(t *testing.T) {
	const (
		header   = "Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData\n"
		known    = "TCP 0AB40009 9C40 AC1E0000 0050 0AB40101 1F90 ESTABLISHED      899\n"
		unknown  = "TCP 0AB40009 9C41 AC1E0000 0050 0AB40101 1F90 ESTABLISHED      899\n"
		closing  = "TCP 0AB40009 9C42 AC1E0000 0050 0AB40101 1F90 TIME_WAIT        119\n"
		foreign  = "TCP 0AB40009 9C43 CB007109 0050 0AB40101 1F90 ESTABLISHED      899\n"
		datagram = "UDP 0AB40009 9C44 AC1E0000 0050 0AB40101 1F90 UDP              299\n"
	)
	l := newInstance(t)
	list := func(lines ...string) {
		t.Helper()
		if err := os.WriteFile(l.fake.folder+"connections", []byte(header+strings.Join(lines, "")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tells := func(when, want string) {
		t.Helper()
		if answer := l.plugin.Report().SwapImpact; want == "" && answer != "" || !strings.HasPrefix(answer, want) {
			t.Errorf("%s, SwapImpact is %q", when, answer)
		}
	}
	l.fake.flows = []flow{{sdk.TCP, netip.MustParseAddrPort("10.180.0.9:40000"), netip.MustParseAddrPort("172.30.0.0:80")}}
	if err := l.full(many(1)); err != nil {
		t.Fatal(err)
	}
	list(known, closing, foreign, datagram)
	l.restartAndServe()
	tells("with tracked connections only", "")
	list(known, unknown, closing, foreign, datagram)
	l.restartAndServe()
	tells("in a new process", "1 established connections began while net.ipv4.vs.conntrack was 0")
	list(known)
	l.keepTracking()
	tells("when they have ended", "")
	list(known, unknown)
	if err := os.WriteFile(l.fake.folder+"net/ipv4/vs/conntrack", []byte("0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	l.keepTracking()
	tells("after another program set it to 0", "1 established")
	l.parameters(map[string]string{"net/ipv4/vs/conntrack": "1"})
}

// keepTracking does a part of the periodic work of the monitor.
func (l *instance) keepTracking() {
	l.Helper()
	l.exclusively(func() {
		if err := l.plugin.session.keepTracking(l.plugin.session.families[0]); err != nil {
			l.Fatal(err)
		}
	})
}

// restartAndServe restarts the process and serves the same Services.
func (l *instance) restartAndServe() {
	l.Helper()
	l.restart()
	if err := l.full(many(1)); err != nil {
		l.Fatal(err)
	}
}
