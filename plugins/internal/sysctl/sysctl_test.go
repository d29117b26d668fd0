// SPDX-License-Identifier: Apache-2.0

package sysctl_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// open returns the ledger in dir.
func open(t *testing.T, dir string) *ledger.Ledger {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("there is a ledger on Linux only")
	}
	shared, err := ledger.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return shared
}

func TestGiveBack(t *testing.T) {
	dir, path := t.TempDir(), parameter(t)
	if err := open(t, dir).Take("some", path, "1"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		l     sdk.Leftovers
		after string
	}{{sdk.Leftovers{DryRun: true}, "1"}, {sdk.Leftovers{}, "0"}} {
		named, err := sysctl.GiveBack(dir, "some", c.l)
		if err != nil || len(named) != 1 || !strings.Contains(named[0], path) {
			t.Errorf("%+v: %q, %v", c.l, named, err)
		}
		if now, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(now)) != c.after {
			t.Errorf("%+v: the value is %q, %v", c.l, now, err)
		}
	}
}

func TestConntrack(t *testing.T) {
	if none := sysctl.Conntrack("sys/", sdk.ConntrackLimits{}); len(none) > 0 {
		t.Errorf("without limits there are settings: %v", none)
	}
	asked := sysctl.Conntrack("sys/", sdk.ConntrackLimits{Max: 12, TCPEstablishedTimeout: 24 * time.Hour, UDPTimeout: time.Minute, TCPBeLiberal: true})
	want := sysctl.Settings{
		{Path: "sys/net/netfilter/nf_conntrack_max", Value: "12", Floor: true}, {Path: "/sys/module/nf_conntrack/parameters/hashsize", Value: "3", Floor: true},
		{Path: "sys/net/netfilter/nf_conntrack_tcp_timeout_established", Value: "86400"},
		{Path: "sys/net/netfilter/nf_conntrack_udp_timeout", Value: "60"}, {Path: "sys/net/netfilter/nf_conntrack_tcp_be_liberal", Value: "1"},
	}
	if !slices.Equal(asked, want) {
		t.Errorf("the settings are %v", asked)
	}
}

// parameter returns the path of a file that stands for a parameter with the value 0.
func parameter(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "parameter")
	if err := os.WriteFile(path, []byte("0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTakeAndRelease(t *testing.T) {
	shared := open(t, t.TempDir())
	log := slog.New(slog.DiscardHandler)
	var told []string
	tell := func(s sysctl.Setting, err error) { told = append(told, s.Path) }
	first, second := parameter(t), parameter(t)
	both := sysctl.Settings{{Path: first, Value: "1", Must: true}, {Path: second, Value: "1"}}
	if err := both.Take(shared, "some", tell); err != nil {
		t.Fatal(err)
	}
	if err := both[:1].Release(shared, "some", log); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{first: "1", second: "0"} {
		if now, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(now)) != want {
			t.Errorf("%s is %q, %v", path, now, err)
		}
	}
	gone := first + "-gone"
	if err := (sysctl.Settings{{Path: gone, Value: "1"}}).Take(shared, "some", tell); err != nil || !slices.Equal(told, []string{gone}) {
		t.Errorf("unset are %q, want the missing one: %v", told, err)
	}
	if err := (sysctl.Settings{{Path: gone, Value: "1", Must: true}}).Take(shared, "some", tell); err == nil {
		t.Error("a missing parameter with Must is no error")
	}
}

// TestReleaseOutOfReach: a parameter that this process cannot write is logged and stays in the ledger. A
// process that can write it gives it back.
func TestReleaseOutOfReach(t *testing.T) {
	const readOnly = "/proc/sys/kernel/ngroups_max" // not even root may write it
	value, err := os.ReadFile(readOnly)
	if err != nil {
		t.Skip("needs Linux's /proc/sys: ", err)
	}
	shared := open(t, t.TempDir())
	var said strings.Builder
	log := slog.New(slog.NewTextHandler(&said, nil))
	path := parameter(t)
	taken := sysctl.Settings{{Path: path, Value: strings.TrimSpace(string(value))}}
	if err := taken.Take(shared, "some", nil); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(path, path+"-writable"), os.Symlink(readOnly, path)); err != nil {
		t.Fatal(err)
	}
	if err := (sysctl.Settings{}).Release(shared, "some", log); err != nil {
		t.Errorf("Release failed: %v", err)
	}
	if !strings.Contains(said.String(), "level=WARN") || !strings.Contains(said.String(), path) {
		t.Errorf("the log does not name the parameter: %s", &said)
	}
	if err := os.Rename(path+"-writable", path); err != nil {
		t.Fatal(err)
	}
	if err := (sysctl.Settings{}).Release(shared, "some", log); err != nil {
		t.Error(err)
	}
	if now, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(now)) != "0" {
		t.Errorf("the restored value is %q, %v", now, err)
	}
}
