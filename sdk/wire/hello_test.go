// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestSkewNamesWhatFits(t *testing.T) {
	tests := []struct {
		hello Hello
		want  string // "": it fits
	}{
		{Hello{Name: "x", Version: "9", Majors: []uint32{1}}, ""},
		{Hello{Name: "x", Version: "9", Majors: []uint32{1, 2}}, ""},
		{Hello{Name: "x", Version: "9", Majors: []uint32{2, 3}, Needs: needs(2)}, "plugin x 9 speaks major 2 and 3 of the wire, this host speaks 1: use a plugin built with an sdk of major 1 (the oldest that fits is 0.1.0), or pointsman 2.0.0 or later as the host; the plugin says: it speaks major 2 of the wire, which needs pointsman 2.0.0 or later"},
		{Hello{Name: "x", Version: "9", Majors: []uint32{0}}, "plugin x 9 speaks major 0 of the wire, this host speaks 1: use a plugin built with sdk 0.1.0 or later"},
		{Hello{Name: "x", Version: "9"}, "plugin x 9 speaks major none of the wire, this host speaks 1: use a plugin built with an sdk of major 1 (the oldest that fits is 0.1.0)"},
	}
	for _, test := range tests {
		err := test.hello.fits()
		if got := errorText(err); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A plugin that a host of another major launches says on stderr what would fit
// it: that host knows nothing of this one's words.
func TestAPluginTellsAHostOfAnotherMajor(t *testing.T) {
	line, stderr := handshaken(t, "serve", "PLUGIN_PROTOCOL_VERSIONS=2,3")
	if !strings.HasPrefix(line, fmt.Sprintf("1|%d|", Major)) {
		t.Errorf("it answered %q; want its own major", line)
	}
	said := make([]byte, 4096)
	n, _ := stderr.Read(said)
	want := "does not fit a host that speaks major 2,3: it speaks major 1 of the wire, which needs pointsman 0.1.0 or later"
	if !strings.Contains(string(said[:n]), want) {
		t.Errorf("it said %q; want %q", said[:n], want)
	}
}

// handshaken starts a part as a host would, by hand, and returns the line with
// which it answers, and its stderr.
func handshaken(t *testing.T, name string, env ...string) (line string, stderr *os.File) {
	t.Helper()
	cmd := part(name)
	cmd.Env = append(cmd.Env, env...)
	cmd.Env = append(cmd.Env, cookieKey+"="+cookieValue, "PLUGIN_UNIX_SOCKET_DIR="+shortDir(t))
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
	line, _ = bufio.NewReader(stdout).ReadString('\n')
	return line, stderr
}
