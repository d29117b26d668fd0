// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/feed"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/track"
)

const modelHostEnv = "DATAPLANES_TEST_HOST"

// desired are the Services of the model.
var desired = []string{"web", "db"}

// modelHost runs a host in this process. It serves desired in the mode that the file "mode" in
// dir names, and follows that file.
func modelHost(dir string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var current atomic.Pointer[config.Host]
	current.Store(modelConfig(dir))
	tracker := track.New(nil)
	for i, name := range desired {
		tracker.SetService(clusterService(name, netip.AddrFrom4([4]byte{172, 30, 0, byte(i + 1)}), corev1.ProtocolTCP))
	}
	tracker.Synced()
	log := hclog.New(&hclog.LoggerOptions{Output: os.Stderr, TimeFormat: "05.000"})
	set := New(Settings{
		Begun: current.Load(), Now: current.Load, NodeName: "node", Tracker: tracker, Log: log,
		Applied: func(feed.Acked) {}, Refused: func() {},
		Reports: report.New(time.Now, func(e report.Event) { log.Info(e.Message, "reason", e.Reason, "object", e.Object) }),
	})
	dies(dir)
	if err := set.Begin(); err != nil {
		log.Error(err.Error())
		return
	}
	go func() { // ends with the process
		for range time.Tick(20 * time.Millisecond) {
			if next := modelConfig(dir); next.Mode != current.Load().Mode {
				current.Store(next)
				set.Reload(config.State{Host: next, Applied: []string{"mode"}})
			}
		}
	}()
	_ = set.Run(ctx)
}

func modelConfig(dir string) *config.Host {
	mode, err := os.ReadFile(filepath.Join(dir, "mode"))
	if err != nil {
		panic(err) // the test begins with one
	}
	h := &config.Host{Mode: string(mode), StateDir: filepath.Join(dir, "state"), PluginDirs: []string{dir}, MinSyncPeriod: config.Duration{Duration: 10 * time.Millisecond}, SyncPeriod: config.Duration{Duration: time.Minute}}
	h.Swap.DrainTimeout.Duration, h.Swap.HoldTimeout.Duration = 5*time.Second, 4500*time.Millisecond
	return h
}

// serves reports whether only this mode has rules, and serves all desired Services.
func serves(mode string) func(kernelState) bool {
	return func(s kernelState) bool {
		return len(s) == 1 && len(s[mode].Frontends) == len(desired) && s[mode].Active
	}
}

// left writes rules that serve, as a previous host or kube-proxy leaves them.
func (m *machine) left(mode string) {
	m.Helper()
	r := rules{Active: true, Frontends: map[string]bool{}}
	for _, name := range desired {
		r.Frontends["shop/"+name+"/tcp4"] = true
	}
	dir := filepath.Join(m.dir, "state/plugins", mode)
	if err := errors.Join(m.kernel.write(kernelState{mode: r}), os.MkdirAll(dir, 0o700)); err != nil {
		m.Fatal(err)
	}
}

// TestFromDown: on a node where rules of mode a serve, a host has mode b, whose plugin cannot run. Then the mode is
// corrected to a, with faults meanwhile. a serves without interruption, and at the end applies updates.
func TestFromDown(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]func(*machine){
		"nothing goes wrong":           func(*machine) {},
		"the plugin is killed":         func(m *machine) { m.crashAfter(1) },
		"the plugin is killed twice":   func(m *machine) { m.crashAfter(0); m.crashed(); m.crashAfter(2) },
		"the host is killed":           func(m *machine) { m.kills("staging"); m.start() },
		"host and plugin are killed":   func(m *machine) { m.crashAfter(1); m.kills("staging"); m.kill("a"); m.start() },
		"the host gets SIGTERM":        func(m *machine) { m.reaches("staging"); m.stop(syscall.SIGTERM); m.start() },
		"mode.json says that b serves": func(m *machine) { m.stop(syscall.SIGKILL); m.write("state/mode.json", `{"serving":"b"}`); m.start() },
		"mode.json says that a must be cleaned up": func(m *machine) {
			m.stop(syscall.SIGKILL)
			m.write("state/mode.json", `{"serving":"b","left":["a"]}`)
			m.start()
		},
		"mode.json says that an unknown mode serves": func(m *machine) { m.stop(syscall.SIGKILL); m.write("state/mode.json", `{"serving":"c"}`); m.start() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, 0)
			m.left("a")
			m.write("kernel/refuse-b", "")
			m.write("mode", "b")
			m.start()
			m.reaches("PluginRefuses")
			m.write("mode", "a")
			m.did("the mode is a")
			trouble(m)
			m.reaches("DataplaneActive object=a")
			m.until("only a serves", serves("a"))
			m.held()
		})
	}
}

// TestCrashAtEachWrite kills the host after the first write of its state file, then after the
// second, and so on, during swaps there and back, until a host finishes a swap first. The next host
// always continues, and no frontend becomes unreachable.
func TestCrashAtEachWrite(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 0)
	m.left("a")
	m.write("mode", "a")
	m.start()
	m.until("mode.json says that a serves", func(kernelState) bool {
		text, _ := os.ReadFile(filepath.Join(m.dir, "state/mode.json"))
		return string(text) == `{"serving":"a"}`
	})
	to, crashes := "b", 0
	for writes := 1; ; writes++ {
		m.stop(syscall.SIGKILL)
		m.write("dies", fmt.Sprint(writes))
		m.write("mode", to)
		m.did("the mode is %s, and the host dies after %d writes", to, writes)
		m.start()
		crashed := m.outlasts(to)
		_ = os.Remove(filepath.Join(m.dir, "dies")) // the host that died removed it
		m.start()
		m.until(to+" serves alone", func(s kernelState) bool { return serves(to)(s) && m.hasNothingLeft() })
		m.held()
		if !crashed {
			break
		}
		crashes++
		to = map[string]string{"a": "b", "b": "a"}[to]
	}
	if crashes < 2 { // another mode comes, and it serves
		t.Errorf("the host died only after %d writes\n%s", crashes, m.evidence())
	}
}

// outlasts waits until the host has died, or has finished a swap to a mode.
func (m *machine) outlasts(mode string) (crashed bool) {
	m.Helper()
	m.until("the host died, or "+mode+" serves alone", func(s kernelState) bool {
		select {
		case <-m.ended:
			crashed = true
			return true
		default:
			return serves(mode)(s) && m.hasNothingLeft()
		}
	})
	if crashed {
		m.did("the host died of its write")
		m.host = nil
	}
	return crashed
}

// hasNothingLeft reports whether mode.json has no mode to clean up.
func (m *machine) hasNothingLeft() bool {
	var saved struct{ Left []string }
	text, err := os.ReadFile(filepath.Join(m.dir, "state/mode.json"))
	return err == nil && json.Unmarshal(text, &saved) == nil && len(saved.Left) == 0
}

// dies kills this process after the given number of writes of its state file. It counts events of inotify, because
// polling would miss writes that are only milliseconds apart on a busy machine. The kernel merges an event with an
// equal last event in the queue, so dies also listens for the event between two writes: each write renames a file away.
func dies(dir string) {
	text, err := os.ReadFile(filepath.Join(dir, "dies"))
	if err != nil {
		return // most hosts do not have to die
	}
	writes, err := strconv.Atoi(string(text))
	if err != nil {
		panic(err)
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err == nil {
		_, err = unix.InotifyAddWatch(fd, filepath.Join(dir, "state"), unix.IN_MOVED_FROM|unix.IN_MOVED_TO)
	}
	if err != nil {
		panic(err)
	}
	go func() { // ends with the process
		event := make([]byte, unix.SizeofInotifyEvent+unix.NAME_MAX+1) // room for one at least, and often for more
		for {
			n, err := unix.Read(fd, event)
			if err != nil && err != unix.EINTR {
				panic(err)
			}
			if writes -= bytes.Count(event[:max(n, 0)], []byte("mode.json\x00")); writes <= 0 {
				_ = os.Remove(filepath.Join(dir, "dies"))
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		}
	}()
}

// TestHangsWhenActive: the next mode does not become Active, but reports progress. The swap is
// undone soon, with the reason.
func TestHangsWhenActive(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 0)
	m.write("kernel/hang-b", "")
	m.write("mode", "a")
	m.start()
	m.reaches("DataplaneActive object=a")
	m.write("mode", "b")
	m.reaches("being undone: updates may be held back for 4.5s at most: promote")
	m.reaches("a continues to serve")
	m.until("only a serves", serves("a"))
	m.held()
}

// TestLeftIsCleaned: a swap that was undone while no mode served leaves rules, which are cleaned
// up once another mode serves.
func TestLeftIsCleaned(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 0)
	m.left("a")
	m.write("kernel/refuse-b", "")
	m.write("mode", "b")
	m.start()
	m.reaches("PluginRefuses")
	for range 3 { // as often as it takes for the change to be undone
		m.crashAfter(0)
		m.write("mode", "a")
		m.crashed()
	}
	if err := os.Remove(filepath.Join(m.kernel.dir, "refuse-b")); err != nil {
		t.Fatal(err)
	}
	m.write("mode", "b")
	m.stop(syscall.SIGKILL)
	m.start()
	m.until("only b serves", serves("b"))
	m.held()
}

// TestReachableStays changes modes at random, kills hosts and plugins after any step, makes plugins
// refuse to run and state files disappear, old or invalid. No step makes a desired frontend
// unreachable. In the end the desired mode serves, and no other one.
func TestReachableStays(t *testing.T) {
	t.Parallel()
	seeds := 4
	if n, err := strconv.Atoi(os.Getenv("POINTSMAN_SOAK")); err == nil {
		seeds = n
	}
	slots := make(chan struct{}, 4)
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			newMachine(t, seed).walk()
		})
	}
}

func (m *machine) walk() {
	m.left([]string{"a", "b"}[m.IntN(2)])
	m.write("mode", "a")
	m.start()
	for range 12 {
		m.step()
		time.Sleep(time.Duration(m.IntN(700)) * time.Millisecond) // the next step comes at any moment of what this one began
	}
	m.stop(syscall.SIGKILL) // only the next host retries a refused plugin
	for _, mode := range []string{"a", "b"} {
		_ = os.Remove(filepath.Join(m.kernel.dir, "refuse-"+mode)) // most often it is not there
	}
	_ = os.Remove(filepath.Join(m.kernel.dir, "crash"))
	m.write("mode", "a")
	m.did("all is well again, and the mode is a")
	m.start()
	m.until("a serves, and b does not", func(s kernelState) bool {
		return len(s["a"].Frontends) == len(desired) && s["a"].Active && !s["b"].Active
	})
	m.held()
}

// step does one thing at random.
func (m *machine) step() {
	mode := []string{"a", "b"}[m.IntN(2)]
	switch m.IntN(9) {
	case 0, 1, 2:
		m.did("the mode is %s", mode)
		m.write("mode", mode)
	case 3:
		m.kill(mode)
	case 4:
		m.crashAfter(m.IntN(6))
	case 5:
		m.did("%s is refused", mode)
		m.write("kernel/refuse-"+mode, "")
	case 6:
		m.did("%s is not refused", mode)
		_ = os.Remove(filepath.Join(m.kernel.dir, "refuse-"+mode)) // it may not be there
	case 7:
		m.stop([]syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[m.IntN(2)])
		m.start()
	case 8:
		m.stop(syscall.SIGKILL)
		m.spoil(mode)
		m.start()
	}
}
