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

func TestSkewNamesWhatFits(t *testing.T) {
	tests := []struct {
		hello Hello
		want  string
	}{
		{Hello{Name: "x", Version: "9", Majors: []uint32{1}}, "<nil>"},
		{Hello{Name: "x", Version: "9", Majors: []uint32{1, 2}}, "<nil>"},
		{Hello{Name: "x", Version: "9", Majors: []uint32{2, 3}}, "plugin x 9 speaks [2 3] of the wire's majors, and this host [1]; try: a plugin built with an sdk of the host's version"},
		{Hello{Name: "x", Version: "9"}, "plugin x 9 speaks [] of the wire's majors, and this host [1]; try: a plugin built with an sdk of the host's version"},
	}
	for _, test := range tests {
		if got := fmt.Sprint(test.hello.checkMajors()); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

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
