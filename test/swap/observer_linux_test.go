// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pointsman/pointsman/test/traffic"
)

// An observer says something every 20 ms on one kept connection of each caller, and
// answers at the far ends, in a process of its own with real-time priority. The other
// callers, their backends and the swap wait for each other's processors; an observer waits
// for what the node does to packets, and for a relay where one is between.
type observer struct {
	calm bool // it has real-time priority
	end  func() (said string, err error)
}

// The port of the Service's that leads to an observer, and its node port.
const (
	observedPort     = 8090
	observedNodePort = 30090
)

// observing in the environment has this binary be an observer of that many connections.
const observing = "POINTSMAN_OBSERVER"

// realTime begins a command that runs another with real-time priority: in turns with others
// of that priority, and killed after two seconds of never sleeping, as one that never sleeps
// takes a processor from all other programs for good.
var realTime = []string{"chrt", "-r", "10", "prlimit", "--rttime=2000000:2000000"}

// observe begins to observe.
func (n *node) observe(callers []caller) *observer {
	n.Helper()
	ends := make([]*os.File, 0, 2*len(callers))
	defer func() { // the observer has its own
		for _, f := range ends {
			_ = f.Close()
		}
	}()
	keep := func(conn net.Conn) {
		f, err := conn.(*net.TCPConn).File()
		if err = errors.Join(err, conn.Close()); err != nil {
			n.Fatal(err)
		}
		ends = append(ends, f)
	}
	for _, c := range callers {
		c.To = netip.AddrPortFrom(c.To.Addr(), map[uint16]uint16{port: observedPort, nodePort: observedNodePort}[c.To.Port()])
		conn, err := c.Dial(n.Context(), c.Over("tcp"), c.To)
		if err != nil {
			n.Fatalf("observe from %s to %s: %v", c.Name, c.To, err)
		}
		keep(conn)
	}
	for range callers {
		select {
		case conn := <-n.observed:
			keep(conn)
		case <-time.After(long):
			n.Fatal("no connection comes to be observed")
		}
	}
	self, err := os.Executable()
	if err != nil {
		n.Fatal(err)
	}
	words := []string{self}
	calm := exec.Command(realTime[0], append(realTime[1:], "true")...).Run() == nil
	if calm {
		words = append(realTime[:len(realTime):len(realTime)], self)
	}
	o, err := observerBy(exec.Command(words[0], words[1:]...), ends)
	if err != nil {
		n.Fatal(err)
	}
	o.calm = calm
	return o
}

// observerBy starts one by that command, with near ends of connections and as many far
// ones. Its end is that of its standard input.
func observerBy(cmd *exec.Cmd, ends []*os.File) (*observer, error) {
	// One processor and no collection of garbage: threads of the runtime that spin until
	// another one gets on keep that one from running where both have real-time priority.
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", observing, len(ends)/2), "GOMAXPROCS=1", "GOGC=off")
	cmd.ExtraFiles = ends
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &observer{end: sync.OnceValues(func() (string, error) {
		_ = input.Close()
		err := cmd.Wait()
		return said.String(), err
	})}, cmd.Start()
}

// longest ends the observer, and is the longest silence that it met.
func (o *observer) longest(t testing.TB) (silence time.Duration) {
	t.Helper()
	said, err := o.end()
	if err != nil {
		t.Errorf("the observer: %v", err)
	}
	var answers int
	var text string
	if _, err := fmt.Sscan(said, &answers, &text); err != nil || answers == 0 {
		t.Errorf("the observer says %q: %v", said, err)
	}
	t.Logf("the observer was answered %d times", answers)
	silence, err = time.ParseDuration(text)
	if err != nil {
		t.Error(err)
	}
	return silence
}

// silence is longest, in words.
func (o *observer) silence(t testing.TB) string {
	t.Helper()
	if o == nil {
		return "-"
	}
	text := o.longest(t).String()
	if !o.calm {
		text += " (without real-time priority)"
	}
	return text
}

// observed is the observer itself: it prints how often it was answered, and the longest
// silence. A connection that ends is not its business; one that is silent for longer than
// its patience is.
func observed(count int) {
	var over atomic.Bool
	var mu sync.Mutex // guards what follows
	var answers int
	var longest time.Duration
	var all sync.WaitGroup
	for i := range count {
		near, far := inherited(3+i), inherited(3+count+i)
		go func() { _, _ = io.Copy(far, far) }() // ends with the process
		all.Go(func() {
			pause := time.NewTicker(20 * time.Millisecond)
			defer pause.Stop()
			for !over.Load() {
				took, err := ask(near)
				if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
					return
				}
				mu.Lock()
				longest = max(longest, took)
				if err == nil {
					answers++
				}
				mu.Unlock()
				if err != nil {
					return
				}
				<-pause.C
			}
		})
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	over.Store(true)
	all.Wait()
	fmt.Println(answers, longest.Round(time.Millisecond))
}

// ask says something, and is how long no answer came: but for the time in which the
// machine that this one is a guest of ran others.
func ask(conn net.Conn) (time.Duration, error) {
	before, asked := stolen(), time.Now()
	_ = conn.SetDeadline(asked.Add(timeout))
	err := traffic.Say(conn)
	return max(0, time.Since(asked)-(stolen()-before)), err
}

// stolen is for how long others ran so far.
func stolen() time.Duration {
	text, _ := os.ReadFile("/proc/stat")
	all, _, _ := strings.Cut(string(text), "\n")
	words := strings.Fields(all)
	if len(words) < 9 {
		return 0
	}
	ticks, _ := strconv.Atoi(words[8])
	return time.Duration(ticks) * 10 * time.Millisecond
}

func inherited(fd int) net.Conn {
	f := os.NewFile(uintptr(fd), "connection")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		fmt.Fprintln(os.Stderr, "observer:", err)
		os.Exit(1)
	}
	return conn
}
