// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/test/apart"
	"github.com/pointsman/pointsman/test/eventually"
	"github.com/pointsman/pointsman/test/traffic"
)

// TestKernelHostKilledAtRandom kills the host at a random moment of each of several swaps. The next host completes the
// swap that was asked for, and no connection fails meanwhile. If the plugins run as units, this includes the userspace
// mode: its connections end with its process, not with the host.
func TestKernelHostKilledAtRandom(t *testing.T) {
	w := newSoak(t)
	swapped := []string{"nftables", "iptables"}
	if apart.Asked() {
		swapped = append(swapped, "userspace")
	}
	for i := range 2 * rounds() {
		to := swapped[i%len(swapped)]
		w.askFor(to)
		w.pause()
		w.killProcess(w.cmd.Process.Pid)
		w.waitForExit()
		w.start()
		w.until(to+" serves, which was asked for", w.serves(to))
	}
	w.done("a host that is killed at a random moment of each swap")
}

// TestKernelSoak swaps between all modes, changes the mode while a swap is in progress, kills and restarts plugins, and
// changes Services, in random order. No connection fails, and host and plugins hold no more in the end than in the
// beginning.
func TestKernelSoak(t *testing.T) {
	w := newSoak(t)
	end := time.Now().Add(soakFor())
	var before map[string]int
	for round := 0; round < 2*rounds() || time.Now().Before(end); round++ {
		w.update(round)
		switch w.random.IntN(4) {
		case 0:
			w.changeMode(modes[w.random.IntN(len(modes))])
		case 1:
			to := ""
			for range 10 {
				to = kernelModes[w.random.IntN(2)]
				w.askFor(to)
				w.load.more(150) // the mode is asked for while a swap is in progress
			}
			w.until(to+" serves, which was asked for last", w.serves(to))
		case 2:
			to := kernelModes[w.random.IntN(2)]
			w.changeMode(to)
			w.askFor(kernelModes[w.random.IntN(2)])
			w.pause()
			if pid := w.plugin(to); pid != 0 { // else the swap has ended the process
				w.killProcess(pid)
			}
		default:
			mode := kernelModes[w.random.IntN(2)]
			w.changeMode(mode)
			w.waitForMode(mode)
			pid := w.plugin(mode)
			if out, err := w.verb("plugin", "restart", mode); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			w.until("another process serves", w.servesWith(mode, pid))
		}
		if round == rounds()-1 { // by now everything exists that is made once
			before = w.resources()
		}
	}
	after := w.resources()
	// A process that has read the conntrack entries of a large load returns the memory some minutes later.
	eventually.SucceedsWithin(t, 6*time.Minute, "no more is held than in the beginning", func() (err error) {
		if after, err = w.held(); err != nil {
			return err
		}
		for what, count := range after {
			if slack := map[string]int{"host's memory in MiB": 20, "plugin's memory in MiB": 20}[what]; count > before[what]+max(2, slack) {
				err = errors.Join(err, fmt.Errorf("%s: %d, and %d in the beginning", what, count, before[what]))
			}
		}
		return err
	})
	t.Logf("held before: %v; and after: %v", before, after)
	w.done("random swaps and faults")
}

var kernelModes = []string{"iptables", "nftables"}

// soakFor returns the duration of the soak.
func soakFor() time.Duration {
	d, _ := time.ParseDuration(os.Getenv("POINTSMAN_SOAK_FOR")) // empty: none
	return d
}

// A soak is a node under a load of 500 new connections a second, and random faults.
type soak struct {
	*node
	random *rand.Rand
	load   *load
}

func newSoak(t *testing.T) *soak {
	n := newNode(t, "iptables")
	n.drain = time.Second
	n.write("host.yaml", strings.Replace(n.settings("iptables"), `metricsBindAddress: ""`, "metricsBindAddress: 127.0.0.1:10249", 1))
	n.start()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	n.waitForAnswers()
	l := &load{Load: traffic.Start(traffic.Plan{New: 3, Every: 36 * time.Millisecond, Keep: 16}, n.callers()...), t: t}
	t.Cleanup(func() { l.End() })
	return &soak{n, rand.New(rand.NewPCG(seed, 42)), l}
}

// askFor asks for a mode, and does not wait. A unit that serves is not swapped to itself.
func (w *soak) askFor(mode string) {
	w.Helper()
	var refused *admin.Error
	_, err := w.SwapMode(w.Context(), admin.SwapAsk{To: mode})
	if err != nil && !(apart.Asked() && errors.As(err, &refused) && refused.Code == http.StatusConflict) {
		w.Fatal(err)
	}
}

// changeMode swaps to a mode, unless it serves already, as soon as no other swap is in progress.
func (w *soak) changeMode(mode string) {
	w.Helper()
	if m := w.waitForRest(); m.Mode != mode {
		w.swapTo(mode)
	}
}

// pause waits for a random number of calls. TestKernelFaults covers the stages that a test can wait for.
func (w *soak) pause() { w.load.more(w.random.IntN(750)) }

// killProcess ends a process that may have ended by itself.
func (w *soak) killProcess(pid int) {
	w.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		w.Fatal(err)
	}
}

// resources returns what host and plugins hold while iptables serves.
func (w *soak) resources() (held map[string]int) {
	w.Helper()
	w.changeMode("iptables")
	w.waitForMode("iptables")
	w.until("the plugin runs, which may have been killed just now", func() (err error) {
		held, err = w.held()
		return err
	})
	return held
}

// held returns what host and plugin hold now, or an error if one of them does not run.
func (w *soak) held() (map[string]int, error) {
	w.Helper()
	host, err := memory(w.cmd.Process.Pid)
	plugin, pluginErr := memory(w.plugin("iptables"))
	return map[string]int{
		"host's descriptors": w.minimum(w.files), "host's goroutines": w.minimum(w.goroutines),
		"host's memory in MiB": host, "plugin's memory in MiB": plugin,
		"processes": len(w.processes()), "files in the state folder": len(filesBelow(w.path("state"))),
	}, errors.Join(err, pluginErr)
}

// memory returns what a process holds of its own, in MiB.
func memory(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	var kib int
	_, rest, _ := strings.Cut(string(text), "\nRssAnon:")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		return 0, fmt.Errorf("the memory of process %d: %w", pid, err)
	}
	return kib / 1024, nil
}

// filesBelow returns the files below a folder.
func filesBelow(dir string) (files []string) {
	_ = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil {
			files = append(files, path)
		}
		return nil
	})
	return files
}

// done ends the load, of which nothing may have failed, and checks that nothing is left of inactive modes.
func (w *soak) done(what string) {
	w.Helper()
	m := w.waitForRest()
	w.load.done(what)
	w.expectOnly(m.Mode)
}
