// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/test/apart"
)

// A point is where in a swap something goes wrong.
type point struct {
	from, to string
	at       string // stage/action
	victim   string // host, new, old, none: the action fails
}

func (p point) String() string {
	return fmt.Sprintf("%s-%s/%s/%s", p.from, p.to, strings.ReplaceAll(p.at, "/", "-"), p.victim)
}

// places are the points of a swap at which its course may change.
var places = []string{
	"preflight/launch", "staging/record", "staging/fill", "verifying/verify", "holding/record", "holding/hold",
	"cutting/record", "cutting/promote", "cutting/retire", "cutting/release", "proving/prove", "draining/drain", "clearing/clear", "clearing/stop",
}

// points are all of them, or with no soak a sample that has every place and every
// victim, for which a seed picks the pair.
func points(t *testing.T) []point {
	seed := uint64(1) // the same each time: what fails now and then is for a soak
	if text := os.Getenv("POINTSMAN_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("seed %d; POINTSMAN_SEED picks another", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	pairs := [][2]string{{"iptables", "userspace"}, {"userspace", "iptables"}, {"userspace", "userspace"}, {"iptables", "iptables"}}
	victims := []string{"host", "new", "old", "none"}
	var all []point
	for i, at := range places {
		if os.Getenv("POINTSMAN_SOAK") == "" {
			pair := pairs[r.IntN(2)]
			all = append(all, point{pair[0], pair[1], at, victims[(i+int(seed%4))%4]})
			continue
		}
		for _, pair := range pairs {
			for _, victim := range victims {
				all = append(all, point{pair[0], pair[1], at, victim})
			}
		}
	}
	if os.Getenv("POINTSMAN_SOAK") == "" { // both of a new binary's processes have connections
		shared := []string{"cutting/retire", "cutting/release", "proving/prove"}
		for _, at := range []string{shared[r.IntN(len(shared))], "draining/drain"} {
			all = append(all, point{"userspace", "userspace", at, "host"})
		}
	}
	return slices.DeleteFunc(all, func(p point) bool { return !p.possible() })
}

// possible points are those that a swap comes to. Of a new binary nothing is verified
// before it writes, nor cleared; and which of its processes is which, cannot be told
// from outside. A plugin that runs by itself has no other process beside it.
func (p point) possible() bool {
	if p.from != p.to {
		return !p.late() || p.victim != "none"
	}
	if apart.Asked() {
		return false
	}
	never := p.at == "verifying/verify" || p.at == "clearing/clear"
	return !never && (p.victim == "host" || p.victim == "none" && !p.late())
}

// late points come when the swap is decided: what fails there is tried again for a
// minute, and changes nothing.
func (p point) late() bool { return strings.HasPrefix(p.at, "clearing") }

// TestKernelFaults lets something go wrong at each place of a swap, under load. Every other
// time the host runs apart from its plugins; in a soak that shifts from pair to pair, so
// that each victim's turn comes.
func TestKernelFaults(t *testing.T) {
	for i, p := range points(t) {
		begin := newNode
		if os.Getenv("POINTSMAN_SOAK") != "" {
			i += i / 4
		}
		if i%2 == 1 && p.from != p.to {
			begin = newApart
		}
		t.Run(p.String(), func(t *testing.T) { fault(begin(t, p.from), p) })
	}
}

func fault(n *node, p point) {
	t := n.T
	n.drainsFrom(p.from, p.at)
	gate := n.path("gate")
	how := map[string]string{"host": "kill", "none": "error"}[p.victim]
	if how == "" {
		how = "wait"
		n.write("gate", "")
	}
	n.start("POINTSMAN_FAIL="+p.at+"="+how, "POINTSMAN_FAIL_GATE="+gate)
	l := n.newLoad()
	if _, err := n.SwapMode(t.Context(), p.to, false); err != nil && p.victim != "host" { // it may be killed before it answers
		t.Fatal(err)
	}
	if p.late() { // what drains is cut when its time is over, which is not the fault's doing
		n.decided()
		l.done(p.String())
	}
	switch p.victim {
	case "host":
		if !n.died() {
			return
		}
		n.start()
	case "new", "old":
		n.kill(p, gate)
	}
	if !p.late() {
		n.decided()
		l.forgive(p)
		l.done(p.String())
	}
	m := n.rested()
	if p.victim == "host" && m.Asked == p.to && m.Mode != p.to { // what the next host undid it begins again
		n.until(p.to+" serves, which was asked for", long, n.serves(p.to))
		m = n.rested()
	}
	t.Logf("%s serves; the swap ended with %+v", m.Mode, m.Last)
	other := map[string]string{"iptables": "userspace", "userspace": "iptables"}[m.Mode]
	n.traceless(other)
	if m.Mode != p.from && m.Mode != p.to {
		t.Errorf("%s serves", m.Mode)
	}
	n.until("one plugin runs, or those that are another program's", long, func() error {
		if all := n.processes(); len(all) != max(1, len(n.kept)) {
			return fmt.Errorf("those that run: %v", all)
		}
		return nil
	})
}

// drainsFrom has a mode serve, and connections end soon where they are drained: not so soon
// that a drain which begins before the host is ended is over before the next one is up.
func (n *node) drainsFrom(mode, at string) {
	n.Helper()
	if n.drain = 3 * time.Second; strings.HasPrefix(at, "draining") {
		n.drain = 15 * time.Second
	}
	n.mode(mode)
}

// died waits for the host to fall over its failpoint; it may have passed by.
func (n *node) died() bool {
	n.Helper()
	select {
	case <-n.exited:
		n.cmd = nil
		return true
	case <-time.After(long):
		n.Error("the host did not come to the failpoint")
		return false
	}
}

// kill kills a plugin while the swap waits at its failpoint.
func (n *node) kill(p point, gate string) {
	n.Helper()
	mode := p.to
	if p.victim == "old" {
		mode = p.from
	}
	n.waiting(p.at)
	if pid := n.plugin(mode); pid > 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err := os.Remove(gate); err != nil {
		n.Fatal(err)
	}
}

// waiting waits until the swap waits at its failpoint.
func (n *node) waiting(at string) {
	n.Helper()
	n.until("the swap is at "+at, long, func() error {
		log, err := os.ReadFile(n.path("host.log"))
		if err == nil && !strings.Contains(string(log), "failpoint reached: "+at) {
			err = errors.New("not yet")
		}
		return err
	})
}

// forgive passes over what nothing could have kept: connections through a relay whose
// process was killed, and new ones until there is another.
func (l *load) forgive(p point) {
	relay := p.victim == "old" && p.from == "userspace" || p.victim == "new" && p.to == "userspace"
	if !relay {
		return
	}
	if failed := l.Sofar().Failed; len(failed) > 0 {
		l.t.Logf("a relay was killed: %d calls through it failed, the first: %s", len(failed), failed[0])
	}
	l.excused = true
}

// TestKernelPluginKilled kills the plugin under load, and has it serve an update
// after that. A mode that keeps rules fails no call.
func TestKernelPluginKilled(t *testing.T) {
	n := newNode(t, "iptables")
	n.start()
	l := n.newLoad()
	var longest time.Duration
	for i := range 3 {
		before := n.plugin("iptables")
		began := time.Now()
		if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		n.until("another process serves", long, n.servesWith("iptables", before))
		n.until("it has confirmed everything", long, func() error {
			s, err := n.Status(t.Context())
			if err == nil && (s.Sync.Acked == 0 || s.Sync.Pending > 0) {
				err = fmt.Errorf("sync %+v", s.Sync)
			}
			return err
		})
		if i == 0 { // those after it wait, as who dies again and again has to
			longest = time.Since(began)
		}
	}
	l.done("a plugin killed three times")
	measured.time("a plugin killed: updates are served again", longest, 500*time.Millisecond)
}

// TestKernelHung stops a plugin's process. It is found out, and replaced.
func TestKernelHung(t *testing.T) {
	n := newNode(t, "iptables")
	n.start()
	l := n.newLoad()
	before := n.plugin("iptables")
	began := time.Now()
	if err := syscall.Kill(before, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	n.until("it is found out", long, func() error {
		s, err := n.Status(t.Context())
		if err == nil && s.Dataplane.State == "serving" && s.Dataplane.PID == before {
			err = errors.New("it counts as serving")
		}
		return err
	})
	found := time.Since(began)
	n.until("another process serves", long, n.servesWith("iptables", before))
	l.done("a plugin that hangs")
	measured.time("a plugin stopped: found", found, 5*time.Second)
	measured.time("a plugin stopped: another one serves", time.Since(began), 0)
}

// TestKernelCrashLoop has a new binary that dies at once. The rules serve on, and the
// plugin is let be.
func TestKernelCrashLoop(t *testing.T) {
	n := newNode(t, "iptables")
	n.forks()
	n.start()
	l := n.newLoad()
	good := n.path("plugins/pointsman-dataplane-iptables")
	n.write("plugins/pointsman-dataplane-iptables", "#!/bin/sh\necho out of coal >&2\nexit 3\n")
	if err := os.Chmod(good, 0o755); err != nil {
		t.Fatal(err)
	}
	if pid := n.plugin("iptables"); pid == 0 || syscall.Kill(pid, syscall.SIGKILL) != nil {
		t.Fatal("no plugin to kill")
	}
	n.until("it is quarantined", long, func() error {
		s, err := n.Status(t.Context())
		if err == nil && s.Dataplane.State != "quarantined" {
			err = fmt.Errorf("%s: %s", s.Dataplane.State, s.Dataplane.Why)
		}
		return err
	})
	before := cpu(t, n.cmd.Process.Pid)
	time.Sleep(2 * time.Second) // of doing nothing
	used := (cpu(t, n.cmd.Process.Pid) - before) / 2
	measured.time("a plugin quarantined: of the processor, each second", used, 0)
	if used > 500*time.Millisecond {
		t.Errorf("the host uses %s of the processor each second while its plugin is let be", used)
	}
	n.install()
	n.until("the good binary serves", long, n.servesWith("iptables", 0))
	l.done("a crash loop")
	n.event("is tried before it may serve")
}

// TestKernelForeign leaves all other programs' rules and the kernel's settings as they
// are, and no trace of a mode that has gone.
func TestKernelForeign(t *testing.T) {
	n := newNode(t, "iptables")
	n.foreign()
	before := n.others()
	n.start()
	n.swapTo("userspace")
	n.settled("userspace")
	n.traceless("iptables")
	n.swapTo("iptables")
	n.settled("iptables")
	n.traceless("userspace")
	if out, err := n.verb("status"); err != nil {
		t.Errorf("status: %v: %s", err, out)
	}
	if after := n.others(); after != before {
		t.Errorf("foreign rules were\n%s\nand are\n%s", before, after)
	}
}

// others are the rules that are not ours.
func (n *node) others() string {
	n.Helper()
	out, err := exec.Command("iptables-save").Output()
	if err != nil {
		n.Fatal(err)
	}
	var kept []string
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "-A") && !strings.Contains(line, "KUBE-") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// TestKernelCannotRun is a swap to a mode that this node cannot run.
func TestKernelCannotRun(t *testing.T) {
	n := newNode(t, "iptables")
	n.broken()
	n.start()
	l := n.newLoad()
	out, err := n.verb("mode", "swap", "broken", "--wait")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(out, "no such thing here") {
		t.Errorf("exit %v: %s", err, out)
	}
	if out, err := n.verb("status"); err == nil || !strings.Contains(out, "W009") {
		t.Errorf("status: %v: %s", err, out)
	}
	n.settled("iptables")
	l.done("a mode that cannot run here")
	if err := os.Remove(n.path("plugins/pointsman-dataplane-broken")); err != nil {
		t.Error(err)
	}
}

// TestKernelStorm swaps while endpoints come and go all the time.
func TestKernelStorm(t *testing.T) {
	n := newNode(t, "iptables")
	n.start()
	l := n.newLoad()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				n.write("services/storm.yaml", fmt.Sprintf(storm, i%200+1, i%250+1, i%250+2))
			}
		}
	}()
	for range 2 {
		n.swapTo("userspace")
		n.swapTo("iptables")
	}
	close(stop)
	<-stopped
	l.done("swaps in a storm of changes")
}

const storm = `
apiVersion: v1
kind: Service
metadata: {name: storm, namespace: shop}
spec: {clusterIP: 172.30.2.%d, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: storm-1, namespace: shop, labels: {kubernetes.io/service-name: storm}}
addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [10.180.3.%d]}, {addresses: [10.180.4.%d]}]
`

// TestKernelFlushed has another program flush the rules of the one that comes, in the
// middle of the swap. Either it is found before the points are thrown, and the swap
// undone; or the one that comes has put them back by then, and serves.
func TestKernelFlushed(t *testing.T) {
	n := newNode(t, "userspace")
	gate := n.path("gate")
	n.write("gate", "")
	n.start("POINTSMAN_FAIL=verifying/verify=wait", "POINTSMAN_FAIL_GATE="+gate)
	l := n.newLoad()
	if _, err := n.SwapMode(t.Context(), "iptables", false); err != nil {
		t.Fatal(err)
	}
	n.waiting("verifying/verify")
	if out, err := exec.Command("iptables", "-w", "-t", "nat", "-F", "KUBE-SERVICES").CombinedOutput(); err != nil {
		t.Fatalf("flush: %v: %s", err, out)
	}
	if err := os.Remove(gate); err != nil {
		t.Fatal(err)
	}
	n.decided()
	l.done("rules that another program flushes")
	switch m := n.rested(); {
	case m.Last == nil:
		t.Error("nothing is known of the swap")
	case m.Mode == "userspace":
		if !strings.Contains(m.Last.Error, "does not serve what it was told") {
			t.Errorf("it was undone because of %q", m.Last.Error)
		}
		n.event("does not serve what it was told")
		n.traceless("iptables")
	default:
		out, err := exec.Command("iptables", "-w", "-t", "nat", "-S", "KUBE-SERVICES").CombinedOutput()
		if m.Last.Error != "" || err != nil || !strings.Contains(string(out), "-A KUBE-SERVICES") {
			t.Errorf("%s serves, after %+v, and its ways in are: %v: %s", m.Mode, m.Last, err, out)
		}
		n.traceless("userspace")
	}
}

// TestKernelNoSpace has no room to write down where the swap stands: it is not made.
func TestKernelNoSpace(t *testing.T) {
	n := newNode(t, "iptables")
	n.start()
	l := n.newLoad()
	file := n.path("state/mode.json")
	n.until("it is written down which mode serves", long, func() error { _, err := os.Stat(file); return err })
	if err := errors.Join(os.Remove(file), os.Mkdir(file, 0o755)); err != nil { // nothing can take its place
		t.Fatal(err)
	}
	n.write("state/mode.json/full", "")
	out, err := n.verb("mode", "swap", "userspace", "--wait")
	if err == nil || !strings.Contains(out, "where the swap stands") {
		t.Errorf("%v: %s", err, out)
	}
	n.settled("iptables")
	l.done("no room for the intent")
}
