// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// replace replaces programs by a shell script until undo is called. In the script, REAL is the path of the program, and
// NAME its name.
func (k kernel) replace(script string, programs ...string) (undo func()) {
	k.Helper()
	dir, before := k.TempDir(), os.Getenv("PATH")
	for _, name := range programs {
		real, err := exec.LookPath(name)
		if err != nil {
			continue // there is no such program to replace
		}
		text := "#!/bin/sh\n" + strings.NewReplacer("REAL", real, "NAME", name).Replace(script) + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			k.Fatal(err)
		}
	}
	k.Setenv("PATH", dir+":"+before)
	return func() { k.Setenv("PATH", before) }
}

// replaceRestore replaces iptables-restore.
func (k kernel) replaceRestore(script string) (undo func()) {
	k.Helper()
	return k.replace(script, "iptables-"+string(k.backend)+"-restore", "ip6tables-"+string(k.backend)+"-restore")
}

func several(n int) sdktest.Scenario {
	s := sdktest.Scenario{Node: sdk.Node{MasqueradeBit: 14}}
	s.Services = cluster(n, func(i int) netip.Addr { return v4(base + uint32(i) + 1) })
	return s
}

// While another program holds the lock of the tables, the plugin reports that it waits. A call that is canceled ends
// and leaves no program running. The next call succeeds.
func TestKernelWaitsForTheLock(t *testing.T) {
	onKernel(t, func(k kernel) {
		if k.backend == iptables.NFT {
			k.Skip("nft has no lock")
		}
		s := several(3)
		p := k.start()
		k.sync(p, s.Update(1))
		unlock := holdLock(k.T)
		defer unlock()
		ctx, cancel := context.WithCancel(k.Context())
		defer cancel()
		done := make(chan error, 1)
		next := several(4)
		go func() { // ends when the call returns
			_, err := p.Sync(ctx, step(s, next, 1))
			done <- err
		}()
		k.eventually("the wait for the lock is reported", func() bool { return strings.Contains(p.Report().Waiting, "lock") })
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			k.Errorf("Sync while another program holds the lock: %v", err)
		}
		if out, err := exec.Command("pgrep", "-P", fmt.Sprint(os.Getpid()), "-f", "restore").Output(); err == nil {
			k.Errorf("programs still run: %s", out)
		}
		if waiting := p.Report().Waiting; waiting != "" {
			k.Errorf("the report still says that it waits for %s", waiting)
		}
		unlock()
		k.sync(p, step(s, next, 1))
		k.want(next, sdk.Standby)
	})
}

// holdLock takes the lock that the programs of iptables use.
func holdLock(t *testing.T) (unlock func()) {
	t.Helper()
	file, err := os.OpenFile(os.Getenv("XTABLES_LOCKFILE"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return func() { file.Close() }
}
