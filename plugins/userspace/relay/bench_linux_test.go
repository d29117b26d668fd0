// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// The benchmarks hold the relay against HAProxy (mode tcp, one thread) and against
// a direct connection, in one run. Both relays are processes of their own on the
// first core; callers and the endpoint are in the test's, on the others. They need
// taskset, and haproxy for its part.

// asRelay is set in the environment of a process that is the relay of a benchmark,
// to the address it listens on and the endpoint.
const asRelay = "POINTSMAN_BENCH_RELAY"

// beRelay serves until standard input ends.
func beRelay(words string) int {
	front, back, _ := strings.Cut(words, " ")
	r := New()
	defer r.Stop()
	web := svc("web", "cluster-ip "+front, back)
	s, err := r.Listen(context.Background(), sdk.TCP, web.Frontends[0].Addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s.Serve(&Target{NewService(web), web.Frontends[0]})
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// A rival is one way from the callers to the endpoint.
type rival struct {
	name  string
	front string // where callers call
	pid   int    // zero: there is nobody between
}

// rivals starts all of them before the endpoint at back.
func rivals(b *testing.B, back string) []rival {
	b.Helper()
	if _, err := exec.LookPath("taskset"); err != nil {
		b.Skip("needs taskset: ", err)
	}
	all := []rival{{name: "direct", front: back}}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	front := benchAddr(3)
	relay := exec.Command("taskset", "-c", "0", self)
	relay.Env = append(os.Environ(), asRelay+"="+front+" "+back, "GOMAXPROCS=1")
	all = append(all, rival{"pointsman", front, startRelay(b, relay, front)})
	if _, err := exec.LookPath("haproxy"); err != nil {
		b.Log("without haproxy, which is not installed")
		return all
	}
	front = benchAddr(4)
	file := filepath.Join(b.TempDir(), "haproxy.cfg")
	text := fmt.Sprintf("global\n nbthread 1\n maxconn 4000\ndefaults\n mode tcp\n timeout connect 5s\n timeout client 1m\n timeout server 1m\n"+
		" option splice-auto\nlisten relay\n bind %s\n server one %s\n", front, back)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	return append(all, rival{"haproxy", front, startRelay(b, exec.Command("taskset", "-c", "0", "haproxy", "-db", "-f", file), front)})
}

func benchAddr(n int) string { return fmt.Sprintf("127.90.%d.%d:18080", os.Getpid()&255, n) }

// startRelay runs a relay until the benchmark ends, and waits until it serves.
func startRelay(b testing.TB, cmd *exec.Cmd, front string) int {
	b.Helper()
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		stdin.Close()
		_ = cmd.Process.Kill() // haproxy does not look at its input
		_ = cmd.Wait()
	})
	eventually(b, func() error {
		c, err := net.Dial("tcp", front)
		if err == nil {
			c.Close()
		}
		return err
	})
	return cmd.Process.Pid
}

// benchEndpoint is one for benchmarks. Each connection says first what it wants: "e" an echo
// of every request, "b" bytes without end.
func benchEndpoint(b *testing.B) string {
	b.Helper()
	addr := benchAddr(2)
	l, err := net.Listen("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() { // ends when l is closed
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answerBench(c) // ends with the connection
		}
	}()
	return addr
}

func answerBench(c net.Conn) {
	defer c.Close()
	buf := make([]byte, 256<<10)
	if _, err := io.ReadFull(c, buf[:1]); err != nil {
		return
	}
	for bulk := buf[0] == 'b'; ; {
		n := len(buf)
		if !bulk {
			var err error
			if n, err = c.Read(buf); err != nil {
				return
			}
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}

func benchDial(b *testing.B, front, mode string) *net.TCPConn {
	b.Helper()
	c, err := net.Dial("tcp", front)
	if err == nil {
		_, err = io.WriteString(c, mode)
	}
	if err != nil {
		b.Fatal(err)
	}
	return c.(*net.TCPConn)
}

const request = "GET /some/thing HTTP/1.1\r\nHost: web.ns1.svc.cluster.local\r\nUser-Agent: benchmark\r\nAccept: */*\r\n\r\n"

// askBench sends one request and hears it.
func askBench(c net.Conn, buf []byte) error {
	if _, err := io.WriteString(c, request); err != nil {
		return err
	}
	_, err := io.ReadFull(c, buf[:len(request)])
	return err
}

// A benchTurn is what one rival did in a moment: how much a second, how much a second
// of its own processor time, and how long the slowest of a hundred took.
type benchTurn struct{ rate, perCPU, p99 float64 }

// Each rival has the machine for a moment, one after the other, several times: so
// that whatever else it is doing troubles all of them.
const (
	moment = 400 * time.Millisecond
	rounds = 7
)

// compare reports the medians of what rivals do, and ratios of one round.
func compare(b *testing.B, unit string, all []rival, do func(r rival) benchTurn) {
	b.Helper()
	seen := make(map[string][]benchTurn)
	for b.Loop() {
		for range rounds {
			for _, r := range all {
				cpu, began := cpuOf(b, r.pid), time.Now()
				turn := do(r)
				turn.perCPU = turn.rate * time.Since(began).Seconds() / max(cpuOf(b, r.pid)-cpu, 1e-9)
				seen[r.name] = append(seen[r.name], turn)
			}
		}
	}
	ratio := func(of func(benchTurn) float64, to string) float64 {
		var ratios []float64
		for i, turn := range seen["pointsman"] {
			ratios = append(ratios, of(turn)/of(seen[to][i]))
		}
		slices.Sort(ratios)
		return ratios[len(ratios)/2]
	}
	rate := func(t benchTurn) float64 { return t.rate }
	late := func(t benchTurn) float64 { return t.p99 }
	for _, r := range all[1:] {
		turns := slices.Clone(seen[r.name])
		slices.SortFunc(turns, func(x, y benchTurn) int { return cmp.Compare(x.rate, y.rate) })
		b.ReportMetric(turns[len(turns)/2].rate, r.name+"-"+unit+"/s")
	}
	b.ReportMetric(ratio(rate, "direct"), "x-direct")
	if len(all) > 2 {
		b.ReportMetric(ratio(rate, "haproxy"), "x-haproxy")
		b.ReportMetric(ratio(func(t benchTurn) float64 { return t.perCPU }, "haproxy"), "x-haproxy-per-cpu")
		if seen["haproxy"][0].p99 > 0 {
			b.ReportMetric(ratio(late, "haproxy"), "x-haproxy-p99")
		}
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkRelayRequests: requests on 32 connections that are kept. The goal is
// 0.95 of HAProxy.
func BenchmarkRelayRequests(b *testing.B) {
	all := rivals(b, benchEndpoint(b))
	conns := make(map[string][]*net.TCPConn)
	for _, r := range all {
		for range 32 {
			c := benchDial(b, r.front, "e")
			defer c.Close()
			conns[r.name] = append(conns[r.name], c)
		}
	}
	compare(b, "requests", all, func(r rival) benchTurn {
		return busy(b, 32, func(i int) error { return askBench(conns[r.name][i], make([]byte, len(request))) })
	})
}

// BenchmarkRelayConnections: connections with one request each, 16 at a time. The
// goal is 0.85 of HAProxy.
func BenchmarkRelayConnections(b *testing.B) {
	compare(b, "connections", rivals(b, benchEndpoint(b)), func(r rival) benchTurn {
		return busy(b, 16, func(int) error {
			c := benchDial(b, r.front, "e")
			defer abort(c) // or the callers' ports run out
			return askBench(c, make([]byte, len(request)))
		})
	})
}

// busy has callers do things for a moment.
func busy(b *testing.B, callers int, do func(caller int) error) benchTurn {
	b.Helper()
	took := make([][]time.Duration, callers)
	began := time.Now()
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for time.Since(began) < moment {
				at := time.Now()
				if err := do(i); err != nil {
					b.Error(err)
					return
				}
				took[i] = append(took[i], time.Since(at))
			}
		})
	}
	all.Wait()
	elapsed := time.Since(began)
	times := slices.Concat(took...)
	if len(times) == 0 {
		b.Fatal("nothing was done")
	}
	slices.Sort(times)
	return benchTurn{rate: float64(len(times)) / elapsed.Seconds(), p99: times[len(times)*99/100].Seconds()}
}

// BenchmarkRelayBulk: megabytes that one connection brings. The goal is what
// HAProxy does.
func BenchmarkRelayBulk(b *testing.B) {
	all := rivals(b, benchEndpoint(b))
	buf := make([]byte, 1<<20)
	compare(b, "MB", all, func(r rival) benchTurn {
		c := benchDial(b, r.front, "b")
		defer c.Close()
		began := time.Now()
		n := 0
		for ; time.Since(began) < moment; n++ {
			if _, err := io.ReadFull(c, buf); err != nil {
				b.Fatal(err)
			}
		}
		return benchTurn{rate: float64(n) / time.Since(began).Seconds()}
	})
}

// BenchmarkRelayIdle: what each of a thousand connections costs that have been used
// once, and wait.
func BenchmarkRelayIdle(b *testing.B) {
	const many = 1000
	all := rivals(b, benchEndpoint(b))
	for b.Loop() {
		for _, r := range all[1:] {
			files, memory := using(b, r.pid)
			var conns []net.Conn
			for range many {
				c := benchDial(b, r.front, "e")
				defer c.Close()
				conns = append(conns, c)
				if err := askBench(c, make([]byte, len(request))); err != nil {
					b.Fatal(err)
				}
			}
			moreFiles, moreMemory := using(b, r.pid)
			b.ReportMetric(float64(moreFiles-files)/many, r.name+"-fds/conn")
			b.ReportMetric(float64(moreMemory-memory)/many, r.name+"-B/conn")
			for _, c := range conns {
				c.Close()
			}
		}
	}
	b.ReportMetric(0, "ns/op")
}

// cpuOf is how many seconds of processor time a process has had.
func cpuOf(b *testing.B, pid int) float64 {
	b.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		b.Fatal(err)
	}
	var total float64
	for _, file := range threads {
		data, _ := os.ReadFile(file) // a thread may end
		var nanoseconds float64
		_, _ = fmt.Sscan(string(data), &nanoseconds)
		total += nanoseconds
	}
	return total / 1e9
}

// using is how many descriptors a process has, and how much memory.
func using(b *testing.B, pid int) (files, memory int) {
	b.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		b.Fatal(err)
	}
	status, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	defer status.Close()
	for lines := bufio.NewScanner(status); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) == 3 && fields[0] == "VmRSS:" {
			kilobytes, _ := strconv.Atoi(fields[1])
			memory = kilobytes << 10
		}
	}
	return len(open), memory
}

// BenchmarkPick is what it takes to choose an endpoint.
func BenchmarkPick(b *testing.B) {
	s := NewService(svc("web", "cluster-ip 10.0.0.1:80", "10.1.0.1:80 10.1.0.2:80 10.1.0.3:80"))
	value := s.Value()
	from := netip.MustParseAddr("10.0.0.9")
	b.ReportAllocs()
	for b.Loop() {
		s.pick(value, value.Cluster, from, nil, time.Time{})
	}
}
