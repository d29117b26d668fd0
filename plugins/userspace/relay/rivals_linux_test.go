// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// asRelay is an environment variable that makes the test program a relay. Its value is the address at which it listens, and
// the endpoint.
const asRelay = "POINTSMAN_BENCH_RELAY"

// beRelay serves until the end of standard input.
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

// A rival is a relay process to compare.
type rival struct {
	name  string
	front string // its address
	pid   int
}

// rivals starts pointsman's relay and, if it is installed, HAProxy, with the endpoint at back.
func rivals(b *testing.B, back string) []rival {
	b.Helper()
	if _, err := exec.LookPath("taskset"); err != nil {
		b.Skip("needs taskset: ", err)
	}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	front := benchAddr(3)
	relay := exec.Command("taskset", "-c", "0", self)
	relay.Env = append(os.Environ(), asRelay+"="+front+" "+back, "GOMAXPROCS=1")
	all := []rival{{"pointsman", front, startRelay(b, relay, front)}}
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

// startRelay starts a relay, and waits until it accepts connections. The relay ends with the test.
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
		_ = cmd.Process.Kill() // haproxy does not read its standard input
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

// benchEndpoint starts an endpoint and returns its address. The first byte of a connection selects the answer: "e" for an echo
// of every request, "b" for endless bytes.
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

// askBench sends a request and reads its echo.
func askBench(c net.Conn, buf []byte) error {
	if _, err := io.WriteString(c, request); err != nil {
		return err
	}
	_, err := io.ReadFull(c, buf[:len(request)])
	return err
}

// cpuOf returns the processor time of a process in seconds.
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

// using returns the number of descriptors and the resident memory of a process.
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
