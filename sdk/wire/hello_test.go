// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

// handshaken launches a part as a host does, and returns when it has written its handshake. Closing the lifeline ends
// the process.
func handshaken(t *testing.T, name string, env ...string) (lifeline io.Closer, stderr *os.File) {
	t.Helper()
	cmd := part(name)
	cmd.Env = append(cmd.Env, env...)
	cmd.Env = append(cmd.Env, cookieKey+"="+cookieValue, "PLUGIN_UNIX_SOCKET_DIR="+shortDir(t))
	lifeline, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = theirs
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		stderr.Close()
	})
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	if !strings.HasPrefix(line, fmt.Sprintf("1|%d|", Major)) {
		t.Fatalf("the handshake is %q; want major %d", line, Major)
	}
	return lifeline, stderr
}
