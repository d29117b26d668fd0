// SPDX-License-Identifier: Apache-2.0

package breakage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ofOthers are those of other programs on the node.
var ofOthers = []fault{
	{name: "chain-flushed", mode: "iptables", do: func(n *node) { n.drifts("-F") }},
	{name: "rule-deleted", mode: "iptables", do: func(n *node) { n.drifts("-D") }},
	{name: "lock-held", mode: "iptables", can: func(n *node) bool { return n.backend == "legacy" }, do: lockHeld},
	{name: "set-flushed", mode: "ipvs", do: setFlushed},
	{name: "address-deleted", mode: "ipvs", do: addressDeleted},
	{name: "virtual-servers-cleared", mode: "ipvs", do: virtualServersCleared},
	{name: "ruleset-flushed", mode: "nftables", can: func(n *node) bool { return n.backend == "legacy" }, do: rulesetFlushed},
	{name: "table-deleted", mode: "nftables", do: tableDeleted},
	{name: "foreign-rules", do: foreignRules},
	{name: "foreign-rules-to-ours", mode: "iptables", do: foreignRulesToOurs},
	{name: "descriptors-exhausted", do: descriptorsExhausted},
	{name: "second-host", mode: "iptables", do: secondHost},
	{name: "host-elsewhere", mode: "iptables", do: hostElsewhere},
}

// drifts takes something out of a chain of a Service that is not called all the time: all
// its rules, or one. The flush is noticed within 5 s and repaired.
func (n *node) drifts(how string) {
	n.Helper()
	n.settle() // changes of Services are under way
	before := n.dump()
	var chains []string
	for name, rules := range before {
		table, chain, _ := strings.Cut(strings.TrimPrefix(name, "iptables "), " ")
		if table == "nat" && strings.HasPrefix(chain, "KUBE-SVC-") && slices.ContainsFunc(rules, func(r string) bool { return strings.Contains(r, fmt.Sprintf(":%d", namePort)) }) {
			chains = append(chains, chain)
		}
	}
	if len(chains) == 0 {
		return
	}
	slices.Sort(chains)
	chain := chains[n.IntN(len(chains))]
	n.step("  %s %s", how, chain)
	words := []string{"-w", "-t", "nat", how, chain}
	if how == "-D" {
		words = append(words, "1")
	}
	n.repaired(soon, func() { n.must("iptables-"+n.backend, words...) })
}

// lockHeld holds the lock of legacy's tables while Services change: what is waited for is
// reported, the plugin is not taken to hang, and rules serve on.
func lockHeld(n *node) {
	var lock *os.File
	err := n.here.Do(func() (err error) {
		if lock, err = os.OpenFile(os.Getenv("XTABLES_LOCKFILE"), os.O_CREATE|os.O_RDONLY, 0o600); err != nil {
			return err
		}
		return unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	})
	if err != nil {
		n.Fatal(err)
	}
	pids := n.plugins(n.mode)
	n.services[0] = n.another(0)
	n.write("services/s0.yaml", n.services[0].manifest())
	n.shows(soon, report{"status says that the lock is waited for", func(l look) error {
		if !strings.Contains(l.status.Dataplane.Waiting, "xtables lock") {
			return fmt.Errorf("it is %q, call %q", l.status.Dataplane.Waiting, l.status.Dataplane.Call)
		}
		return nil
	}})
	n.shows(soon, probe("healthz", 503))
	if err := lock.Close(); err != nil {
		n.Fatal(err)
	}
	n.until("the change is served", long, n.served)
	if after := n.plugins(n.mode); !slices.Equal(pids, after) {
		n.Errorf("the plugin was %v and is %v: it waited, and did not hang", pids, after)
	}
}

// setFlushed empties the set of endpoints that call themselves.
func setFlushed(n *node) {
	n.settle() // changes of Services are under way
	n.repaired(soon, func() { n.must("ipset", "flush", "PM-LOOP-BACK") })
}

// addressDeleted takes a cluster IP off the device, of a Service that is not called all the
// time.
func addressDeleted(n *node) {
	n.settle()
	indexes := slices.Sorted(maps.Keys(n.services))
	if len(indexes) == 0 {
		return
	}
	s := n.services[indexes[n.IntN(len(indexes))]]
	n.repaired(soon, func() { n.must("ip", "addr", "del", s.vip().Addr().String()+"/32", "dev", "kube-ipvs0") })
}

// virtualServersCleared takes away all virtual servers, foreign ones too. Calls fail until
// they are back.
func virtualServersCleared(n *node) {
	n.settle()
	n.cut()
	n.repaired(soon, func() {
		n.must("ipvsadm", "-C")
		n.must("ipvsadm", "-A", "-t", "203.0.113.77:99", "-s", "rr")
	})
}

// repaired has something be taken away, and holds the plugin to noticing that within a time,
// to putting back all that was there, and to reporting it.
func (n *node) repaired(limit time.Duration, harm func()) {
	n.Helper()
	before := n.dump()
	harm()
	n.within(limit, "all is as it was", func() error {
		if text := before.differs(n.dump()); text != "" {
			return errors.New(text)
		}
		return nil
	})
	n.shows(soon, metric(`pointsman_plugin_repaired_total{plugin="`+n.mode+`"}`, some))
}

// foreignRules has others write rules and take them away, while the host changes its own.
func foreignRules(n *node) {
	tool := "iptables-" + n.backend
	n.must(tool, "-w", "-t", "nat", "-I", "PREROUTING", "-d", "203.0.113.10", "-j", "RETURN")
	n.must(tool, "-w", "-I", "FORWARD", "-s", "198.51.100.9", "-j", "DROP")
	n.churn(4)
	n.until("the changes are served", long, n.served)
	n.must(tool, "-w", "-t", "nat", "-D", "PREROUTING", "-d", "203.0.113.10", "-j", "RETURN")
	n.must(tool, "-w", "-D", "FORWARD", "-s", "198.51.100.9", "-j", "DROP")
}

// foreignRulesToOurs has others lead to KUBE-MARK-MASQ, as port mappings do: these rules
// stay through changes, restarts and swaps, and so does the chain.
func foreignRulesToOurs(n *node) {
	tool := "iptables-" + n.backend
	rules := [][]string{
		{"-t", "nat", "-N", "CNI-HOSTPORT-SETMARK"},
		{"-t", "nat", "-A", "CNI-HOSTPORT-SETMARK", "-m", "comment", "--comment", "CNI portfwd masquerade mark", "-j", "KUBE-MARK-MASQ"},
		{"-t", "nat", "-A", "PREROUTING", "-d", "203.0.113.11/32", "-j", "KUBE-MARK-MASQ"},
	}
	for _, rule := range rules {
		n.must(tool, append([]string{"-w"}, rule...)...)
	}
	n.kill(n.mode, syscall.SIGKILL)
	n.churn(2)
	n.until("the changes are served", long, n.served)
	n.swap(n.other())
	n.settle()
	for _, rule := range rules[1:] {
		if out, err := n.run(tool, append([]string{"-w"}, strings.Split(strings.Replace(strings.Join(rule, "\x00"), "-A", "-C", 1), "\x00")...)...); err != nil {
			n.Errorf("%q is gone: %v: %s", rule, err, out)
		}
	}
	n.swap("iptables")
	n.settle()
	for _, words := range [][]string{
		{"-t", "nat", "-D", "PREROUTING", "-d", "203.0.113.11/32", "-j", "KUBE-MARK-MASQ"},
		{"-t", "nat", "-F", "CNI-HOSTPORT-SETMARK"}, {"-t", "nat", "-X", "CNI-HOSTPORT-SETMARK"},
	} {
		n.must(tool, append([]string{"-w"}, words...)...)
	}
}

// descriptorsExhausted has callers open more connections to the host's own addresses than
// it may have files, while the plugin is killed. That is not held against the plugin.
func descriptorsExhausted(n *node) {
	var limit unix.Rlimit
	if err := unix.Prlimit(n.cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		n.Fatal(err)
	}
	few := unix.Rlimit{Cur: 128, Max: limit.Max}
	if err := unix.Prlimit(n.cmd.Process.Pid, unix.RLIMIT_NOFILE, &few, nil); err != nil {
		n.Fatal(err)
	}
	var held []net.Conn
	for range 150 {
		for _, at := range []string{healthz, metrics} {
			_ = n.here.Do(func() error {
				conn, err := (&net.Dialer{Timeout: 200 * time.Millisecond}).Dial("tcp4", at)
				if err == nil {
					held = append(held, conn)
				}
				return err
			})
		}
	}
	n.kill(n.mode, syscall.SIGKILL)
	time.Sleep(time.Second)
	for _, conn := range held {
		_ = conn.Close()
	}
	n.within(soon, "the plugin serves again, a moment after there are files to be had", n.served)
	if err := unix.Prlimit(n.cmd.Process.Pid, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		n.Fatal(err)
	}
}

// secondHost has another host begin beside this one, with a state of its own. It has no
// writer, and says so; the first serves on.
func secondHost(n *node) {
	n.write("second.yaml", n.settingsOf(n.mode, "second.sock", "second", "127.0.0.1:10356", "127.0.0.1:10349"))
	second := n.beside("second.sock", "127.0.0.1:10356", "127.0.0.1:10349")
	second.cmd, second.exited = n.host("second.yaml", "second.log")
	second.until("the second host answers", long, func() error { _, err := second.Status(context.Background()); return err })
	second.writerless()
	n.churn(3)
	n.until("the first host serves on", long, n.served)
	second.end(syscall.SIGINT)
	n.must("rm", "-rf", n.path("second"), n.path("second.yaml"))
}

// hostElsewhere ends the host, whose plugin stays, and has one begin whose state is
// elsewhere: it has no writer, and says so, until the plugin's process has ended.
func hostElsewhere(n *node) {
	n.again(syscall.SIGKILL, func() {
		n.write("second.yaml", n.settingsOf(n.mode, "second.sock", "second", healthz, metrics))
		second := n.beside("second.sock", healthz, metrics)
		second.cmd, second.exited = n.host("second.yaml", "second.log")
		second.until("the second host answers", long, func() error { _, err := second.Status(context.Background()); return err })
		second.writerless()
		n.kill(n.mode, syscall.SIGKILL)
		second.within(soon, "the second host serves once it can", second.served)
		if n.mode == "userspace" {
			n.relayGone()
		}
		second.end(syscall.SIGINT)
		n.must("rm", "-rf", n.path("second"), n.path("second.yaml"))
	})
}

// writerless holds the host to saying that it may not write, in status, metrics and the
// probe of readiness.
func (n *node) writerless() {
	n.Helper()
	n.shows(soon, warning("W014", ""), metric(`pointsman_plugin_writer{plugin="`+n.mode+`"}`, zero), probe("readyz", 503))
}
