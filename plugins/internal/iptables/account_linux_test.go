// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net"
	"testing"
)

// An account counts the packets of a rule that names it, outlives the rule, and goes
// when no rule names it.
func TestKernelAccounts(t *testing.T) {
	needsRoot(t)
	const name = "pointsman_test"
	if _, ok := Account(name); ok {
		t.Fatal("it is there before anybody made it")
	}
	for range 2 { // to make it again changes nothing
		if err := OpenAccounts(name); err != nil {
			t.Skip("needs a kernel with accounts: ", err)
		}
	}
	if n, ok := Account(name); n != 0 || !ok {
		t.Errorf("a new one has %d, %t", n, ok)
	}
	runs(t, "ip", "link", "set", "lo", "up")
	rule := []string{"OUTPUT", "-d", "127.0.0.9", "-p", "udp", "-m", "nfacct", "--nfacct-name", name}
	runs(t, "iptables-nft", append([]string{"-A"}, rule...)...)
	conn, err := net.Dial("udp4", "127.0.0.9:9")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("one")); err != nil {
		t.Fatal(err)
	}
	if n, _ := Account(name); n != 1 {
		t.Errorf("one packet was sent, and %d were counted", n)
	}
	if err := CloseAccount(name); err != nil {
		t.Error("while a rule counts by it:", err)
	}
	runs(t, "iptables-nft", append([]string{"-D"}, rule...)...)
	if n, ok := Account(name); n != 1 || !ok {
		t.Errorf("without its rule it has %d, %t", n, ok)
	}
	for range 2 {
		if err := CloseAccount(name); err != nil {
			t.Error(err)
		}
	}
	if _, ok := Account(name); ok {
		t.Error("it is there after it was removed")
	}
}
