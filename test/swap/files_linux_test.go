// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// older writes the host's state as hosts of before did: how far a swap is, in a file of its
// own.
func (n *node) older() {
	n.Helper()
	var mode map[string]json.RawMessage
	if err := json.Unmarshal([]byte(n.read("state/mode.json")), &mode); err != nil {
		n.Fatal(err)
	}
	if swap, ok := mode["swap"]; ok {
		n.write("state/swap.json", string(swap)+"\n")
	}
	delete(mode, "swap")
	delete(mode, "left")
	text, err := json.Marshal(mode)
	if err != nil {
		n.Fatal(err)
	}
	n.write("state/mode.json", string(text))
}

// TestKernelUpgradeMidSwap kills the host in the middle of a swap, under load, and has the
// next one find what a host of before would have left: it goes on with the plugins that run,
// fails no connection, and leaves one file.
func TestKernelUpgradeMidSwap(t *testing.T) {
	for at, serves := range map[string]string{ // what the host that finds it serves with
		"staging/fill":   "iptables",
		"cutting/retire": "iptables",
		"proving/prove":  "iptables",
		"draining/drain": "userspace",
	} {
		t.Run(at, func(t *testing.T) {
			n := newNode(t, "iptables")
			n.forks()
			n.drainsFrom("iptables", at)
			n.start("POINTSMAN_FAIL=" + at + "=kill")
			l := n.newLoad()
			_, _ = n.SwapMode(t.Context(), "userspace", false) // the host may be killed before it answers
			if !n.died() {
				return
			}
			before := n.processes()
			n.older()
			n.exec(n.host())
			n.answering()
			if now := n.plugin(serves); before[fmt.Sprint(now)] == "" {
				t.Errorf("process %d serves %s, which is none of %v", now, serves, before)
			}
			n.until("userspace serves, which was asked for", long, n.serves("userspace"))
			n.rested()
			l.done("an upgrade at " + at)
			if _, err := os.Stat(n.path("state/swap.json")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the file of a host of before is still there: %v", err)
			}
			n.traceless("iptables")
		})
	}
}

// TestKernelUpgradeFromOlder kills an older host while the one that leaves drains, and has
// this one go on with what that wrote. POINTSMAN_OLDER is a folder with the binaries of one.
func TestKernelUpgradeFromOlder(t *testing.T) {
	older := os.Getenv("POINTSMAN_OLDER")
	if older == "" {
		t.Skip("needs the binaries of an older host, in POINTSMAN_OLDER; files as one writes them are tried by TestKernelUpgradeMidSwap")
	}
	n := newNode(t, "iptables")
	n.forks()
	n.drain = 15 * time.Second
	n.mode("iptables")
	n.copy(filepath.Join(older, "pointsman"), "pointsman")
	n.start()
	l := n.newLoad()
	if _, err := n.SwapMode(t.Context(), "userspace", false); err != nil {
		t.Fatal(err)
	}
	n.decided()
	was := n.plugin("userspace")
	n.slay(n.cmd.Process.Pid)
	n.gone(long)
	if text := n.read("state/swap.json"); !strings.Contains(text, `"draining"`) {
		t.Errorf("the older host wrote %s", text)
	}
	n.copy(filepath.Join(programs.dir, "pointsman"), "pointsman")
	n.start()
	n.until("userspace serves, by the same process", long, func() error {
		if now := n.plugin("userspace"); now != was {
			return fmt.Errorf("process %d, not %d", now, was)
		}
		return n.serves("userspace")()
	})
	n.rested()
	l.done("an upgrade from an older host while the one that leaves drains")
	n.traceless("iptables")
}

// TestKernelDowngradeMidSwap has an older host come in the middle of a swap, after one that
// was told to end and after one that was killed. Without POINTSMAN_OLDER, a folder with the
// binaries of one, this host finds what an older one would.
func TestKernelDowngradeMidSwap(t *testing.T) {
	for _, at := range []string{"holding/hold", "draining/drain"} {
		for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			t.Run(at+"/"+signal.String(), func(t *testing.T) {
				n := newNode(t, "iptables")
				n.forks()
				n.drainsFrom("iptables", at)
				n.write("gate", "")
				n.start("POINTSMAN_FAIL="+at+"=wait", "POINTSMAN_FAIL_GATE="+n.path("gate"))
				l := n.newLoad()
				if _, err := n.SwapMode(t.Context(), "userspace", false); err != nil {
					t.Fatal(err)
				}
				n.waiting(at)
				if err := errors.Join(n.cmd.Process.Signal(signal), os.Remove(n.path("gate"))); err != nil {
					t.Fatal(err)
				}
				n.gone(30 * time.Second)
				n.cmd = nil
				n.downgraded(signal)
				n.exec(n.host())
				n.answering()
				n.until("userspace serves, which was asked for", long, n.serves("userspace"))
				n.rested()
				l.done("a downgrade at " + at + " after " + signal.String())
			})
		}
	}
}

// downgraded puts an older host in place, or has this one find what an older one would read:
// nothing of the swap in mode.json, and swap.json where the host before wrote that.
func (n *node) downgraded(signal syscall.Signal) {
	n.Helper()
	if older := os.Getenv("POINTSMAN_OLDER"); older != "" {
		n.copy(filepath.Join(older, "pointsman"), "pointsman")
		return
	}
	var mode map[string]json.RawMessage
	if err := json.Unmarshal([]byte(n.read("state/mode.json")), &mode); err != nil {
		n.Fatal(err)
	}
	delete(mode, "swap")
	text, err := json.Marshal(mode)
	if err != nil {
		n.Fatal(err)
	}
	n.write("state/mode.json", string(text))
	_, err = os.Stat(n.path("state/swap.json"))
	if (err == nil) != (signal == syscall.SIGTERM) || !strings.Contains(string(text), `"left"`) {
		n.Errorf("after %s the swap's file: %v, and %s", signal, err, text)
	}
}
