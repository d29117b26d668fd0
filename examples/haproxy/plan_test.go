// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// TestPlan: endpoints come and go while HAProxy runs, and anything else needs another process.
func TestPlan(t *testing.T) {
	const id = "ns1.web.http.tcp4"
	runs := running{section: section1(t, web("10.0.0.1:80", "10.0.0.2:80")), resting: []netip.AddrPort{addr("10.0.0.3:80")}}
	name := runs.Name
	affinity, moved := web("10.0.0.1:80"), web("10.0.0.1:80")
	affinity.Affinity = time.Hour
	moved.Frontends[0].Addr = addr("127.30.0.42:20080")
	none := sdk.Service{}
	for _, c := range []struct {
		what  string
		have  bool
		to    sdk.Service
		steps []string
	}{
		{"the same", true, web("10.0.0.1:80", "10.0.0.2:80"), nil},
		{"one more", true, web("10.0.0.1:80", "10.0.0.2:80", "10.0.0.9:80"), []string{
			"add server " + id + "/10.0.0.9:80 10.0.0.9:80", "enable server " + id + "/10.0.0.9:80"}},
		{"one that rests", true, web("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"), []string{"set server " + id + "/10.0.0.3:80 state ready"}},
		{"none", true, web(), []string{
			"del server " + id + "/10.0.0.1:80", "del server " + id + "/10.0.0.2:80",
			"set server " + id + "/10.0.0.1:80 state maint", "set server " + id + "/10.0.0.2:80 state maint"}},
		{"affinity", true, affinity, []string{"reload with another section " + id}},
		{"another frontend", true, moved, []string{"reload with another section " + id}},
		{"gone", true, none, []string{"reload without section " + id}},
		{"new", false, web("10.0.0.1:80"), []string{"reload with section " + id}},
		{"gone that never was", false, none, nil},
	} {
		have, wanted := map[sdk.Name]running{}, map[sdk.Name]section{}
		if c.have {
			have[name] = runs
		}
		if c.to.Name == name {
			wanted[name] = section1(t, c.to)
		}
		if got := plan(have, wanted, []sdk.Name{name}).lines(); !slices.Equal(got, c.steps) {
			t.Errorf("%s: %q, want %q", c.what, got, c.steps)
		}
	}
}

// TestAddsBeforeItRemoves: there is no moment without an endpoint.
func TestAddsBeforeItRemoves(t *testing.T) {
	runs := running{section: section1(t, web("10.0.0.1:80"))}
	got := runs.toward([]netip.AddrPort{addr("10.0.0.2:80")})
	const id = "ns1.web.http.tcp4"
	wanted := []string{"add server " + id + "/10.0.0.2:80 10.0.0.2:80", "enable server " + id + "/10.0.0.2:80",
		"set server " + id + "/10.0.0.1:80 state maint", "del server " + id + "/10.0.0.1:80"}
	if !slices.Equal(got, wanted) {
		t.Errorf("got %q", got)
	}
}

func TestParseServers(t *testing.T) {
	const answer = `1
# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr srv_agent_addr srv_agent_port
2 ns1.web.http.tcp4 1 10.0.0.1:80 10.0.0.1 2 0 1 1 10 1 0 2 0 0 0 0 - 80 - 0 0 - - 0
2 ns1.web.http.tcp4 2 10.0.0.2:80 10.0.0.2 0 1 1 1 0 1 0 0 0 0 0 0 - 80 - 0 0 - - 0
3 ns1.web.http.tcp6 1 fd00::1:80 fd00::1 2 0 1 1 0 1 0 0 0 0 0 0 - 80 - 0 0 - - 0

`
	got, err := parseServers(answer)
	if err != nil {
		t.Fatal(err)
	}
	if s := got["ns1.web.http.tcp4"]; !slices.Equal(s, []server{{1, addr("10.0.0.1:80"), true}, {2, addr("10.0.0.2:80"), false}}) {
		t.Errorf("servers %v", s)
	}
	if s := got["ns1.web.http.tcp6"]; !slices.Equal(s, []server{{1, addr("[fd00::1]:80"), true}}) {
		t.Errorf("servers %v", s)
	}
	if _, err := parseServers("1\nCan't find backend.\n"); err == nil {
		t.Error("an answer that is none was read")
	}
}

func TestParseClients(t *testing.T) {
	const answer = `# table: ns1.web.http.tcp4, type: ip, size:65536, used:2
0x55ed6e40a800: key=10.0.0.7 use=0 exp=10796771 server_id=2 server_key=10.0.0.2:80
0x7f333c04b910: key=10.0.0.9 use=0 exp=10800000 server_id=1 server_key=-
`
	got, err := parseClients(answer)
	wanted := []client{
		{netip.MustParseAddr("10.0.0.7"), 2, 10796771 * time.Millisecond, true},
		{netip.MustParseAddr("10.0.0.9"), 1, 3 * time.Hour, false},
	}
	if err != nil || !slices.Equal(got, wanted) {
		t.Errorf("clients %v, %v", got, err)
	}
}

func TestParseSockets(t *testing.T) {
	for line, wanted := range map[string]socket{
		"  0: 29001E7F:4E70 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0": {addr("127.30.0.41:20080"), stateListen, 0, "4711"},
		"  1: 00000000000000000000000001000000:55F0 0:0 01 0:3 0:0 0     0        0 4711 1 0":                {addr("[::1]:22000"), stateEstablished, 3, "4711"},
	} {
		if got, ok := parseSocket(line); !ok || got != wanted {
			t.Errorf("%s: %v, %t", line, got, ok)
		}
	}
	if _, ok := parseSocket("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"); ok {
		t.Error("the line of headings was read as a socket")
	}
}

// TestWhatDoesNotStart: what HAProxy prints says of which Services it is.
func TestWhatDoesNotStart(t *testing.T) {
	s := section1(t, web())
	err := &startError{alerts("[NOTICE]   (7) : haproxy version is 2.6.12\n" +
		"[ALERT]    (7) : Starting proxy ns1.web.http.tcp4: cannot bind socket (Address already in use) [127.30.0.41:20080]\n" +
		"[ALERT]    (7) : [/usr/sbin/haproxy.main()] Some protocols failed to start their listeners! Exiting.\n")}
	failed := err.of(map[sdk.Name]section{s.Name: s})
	if len(failed) != 1 || failed[0].Name != s.Name || failed[0].Err.Error() != "HAProxy: cannot bind socket (Address already in use) [127.30.0.41:20080]" {
		t.Errorf("failed: %v", failed)
	}
}
