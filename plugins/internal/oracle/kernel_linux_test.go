// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

const written = `table ip t {
	set allowed { type inet_service . ipv4_addr; flags interval; elements = { 80 . 198.18.0.0/24 } }
	map verdicts { type inet_service : verdict; elements = { 1 : drop, 2 : jump refused, 3 : goto refused, 4 : accept } }
	chain refused { tcp sport 40000-50000 counter reject; }
	chain in {
		type filter hook forward priority 0;
		tcp dport vmap @verdicts
		meta priority set tcp dport map { 90 : 7 }
		meta priority 7 drop
		ip saddr & 255.0.0.0 != 10.0.0.0 tcp dport >= 100 drop
		tcp dport != 50-99 accept
		fib saddr type local drop
		limit rate 1/second log
		tcp dport { 60-62, 70 } reject
		tcp dport 63 ip saddr { 198.18.0.0/16, 10.0.0.0/8 } drop
		tcp dport 65 ip saddr != { 10.0.0.0/8, 172.16.0.0/12 } drop
		tcp dport 64 tcp sport vmap { 1 : accept, * : drop }
		tcp dport . ip saddr @allowed reject with tcp reset
		ct state new iifname "eth*" limit rate 1/second drop
	}
}`

// ReadTable and NFTables understand rules that nft has written.
func TestKernelReads(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it writes to the kernel's tables in a network namespace")
	}
	nft := exec.Command("nft", "-f", "-")
	nft.Stdin = strings.NewReader(written)
	if out, err := nft.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
	conn, err := nftnl.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	table, err := ReadTable(t.Context(), conn.List(nftnl.IPv4, "t"))
	if err != nil {
		t.Fatal(err)
	}
	for dest, want := range map[string]string{
		"10.0.0.1:1": "DROP", "10.0.0.1:2": "REJECT", "10.0.0.1:3": "REJECT", "10.0.0.1:4": "ACCEPT",
		"10.0.0.1:90": "DROP", "10.0.0.1:100": "DROP", "10.0.0.1:5": "ACCEPT", "10.0.0.1:80": "REJECT",
		"10.0.0.1:60": "REJECT", "10.0.0.1:61": "REJECT", "10.0.0.1:70": "REJECT", "10.0.0.1:63": "DROP", "10.0.0.1:64": "DROP", "10.0.0.1:65": "DROP",
	} {
		if end := endOf(t, table, "eth0", client, dest); end != "= "+want+" "+dest {
			t.Errorf("%s: %s, not %s", dest, end, want)
		}
	}
	if _, err := from(t, table, "eth0", client, "10.0.0.1:81"); err == nil || !strings.HasSuffix(err.Error(), "chain in, rule 13: the expression limit") {
		t.Errorf("a rule with a limit: %v", err)
	}
}
