// SPDX-License-Identifier: Apache-2.0

package nftnl

import (
	"errors"
	"net"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// An account counts the packets of a rule that names it, outlives the rule, and is deleted only if no rule names
// it.
func TestKernelAccounts(t *testing.T) {
	c := dial(t)
	const name = "pointsman_test"
	check := func(why string, packets uint64, there bool) {
		t.Helper()
		if n, ok := c.Account(t.Context(), name); n != packets || ok != there {
			t.Errorf("%s: %d packets, exists %t; want %d, %t", why, n, ok, packets, there)
		}
	}
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v: %s", name, args, err, out)
		}
	}
	check("before CreateAccount", 0, false)
	for range 2 { // the second call changes nothing
		if err := c.CreateAccount(t.Context(), name); err != nil {
			t.Skip("needs a kernel with accounts: ", err)
		}
	}
	check("a new account", 0, true)
	run("ip", "link", "set", "lo", "up")
	rule := []string{"OUTPUT", "-d", "127.0.0.9", "-p", "udp", "-m", "nfacct", "--nfacct-name", name}
	run("iptables-nft", append([]string{"-A"}, rule...)...)
	conn, err := net.Dial("udp4", "127.0.0.9:9")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("one")); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteAccount(t.Context(), name); err != nil {
		t.Error(err)
	}
	check("after one packet, and DeleteAccount while a rule names it", 1, true)
	run("iptables-nft", append([]string{"-D"}, rule...)...)
	check("without its rule", 1, true)
	for range 2 {
		if err := c.DeleteAccount(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	check("after DeleteAccount", 0, false)
}

// HasMatch returns ENOENT for a match that does not exist.
func TestKernelHasNoSuchMatch(t *testing.T) {
	if err := dial(t).HasMatch(t.Context(), IPv4, "nosuch"); !errors.Is(err, unix.ENOENT) {
		t.Error(err)
	}
}
