// SPDX-License-Identifier: Apache-2.0

package breakage

import (
	"context"
	"fmt"
	"net"
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
	limit := soon
	if how == "-D" { // which only the slow audit sees
		limit = time.Minute
	}
	n.must("iptables-"+n.backend, words...)
	n.within(limit+time.Second, "the chain is as it was", func() error {
		if text := before.differs(n.dump()); text != "" {
			return fmt.Errorf("%s", text)
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
	n.within(2*soon, "the plugin serves again, a moment after there are files to be had", n.served)
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
	second.end(syscall.SIGINT, 3*time.Second)
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
		second.within(2*soon, "the second host serves once it can", second.served)
		if n.mode == "userspace" {
			n.relayGone()
		}
		second.end(syscall.SIGINT, 3*time.Second)
		n.must("rm", "-rf", n.path("second"), n.path("second.yaml"))
	})
}

// writerless holds the host to saying that it may not write, in status, metrics and the
// probe of readiness.
func (n *node) writerless() {
	n.Helper()
	n.shows(2*soon, warning("W014", ""), metric(`pointsman_plugin_writer{plugin="`+n.mode+`"}`, zero), probe("readyz", 503))
}
