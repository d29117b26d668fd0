// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pointsman/pointsman/sdk/wire"
)

// A Handle is all that it takes to reach a plugin again, from another process too. It
// holds the key to it: keep it where only the host can read (0600).
type Handle struct {
	wire.Target
	PID   int    `json:"pid,omitempty"`   // zero: not known, as of a plugin that listens in another container
	Start uint64 `json:"start,omitempty"` // the process's StartTime
	Dir   string `json:"dir,omitempty"`   // made for the socket, and removed with the process

	// By these the process is known before it gets a signal.
	Launch string `json:"launch,omitempty"` // of its Mark
	NetNS  string `json:"netns,omitempty"`  // its network namespace, as /proc names it
	Exe    string `json:"exe,omitempty"`    // device and inode of what it executes
}

// String leaves the key out.
func (h Handle) String() string {
	if h.PID == 0 {
		return h.Target.String()
	}
	return fmt.Sprintf("%s (pid %d)", h.Target, h.PID)
}

// socketDirPrefix is how go-plugin names the directory that it makes for a socket.
const socketDirPrefix = "plugin-dir"

// SweepSockets removes from dir, a Command's SocketDir, what was made for the sockets of
// plugins that have ended. Where something listens, nothing is removed.
func SweepSockets(dir string) {
	sockets, _ := filepath.Glob(filepath.Join(dir, socketDirPrefix+"*", "plugin*")) // the pattern is none that fails
	listens := make(map[string]bool)
	for _, socket := range sockets {
		if conn, err := net.DialTimeout("unix", socket, time.Second); err == nil {
			_ = conn.Close()
			listens[filepath.Dir(socket)] = true
		}
	}
	made, _ := filepath.Glob(filepath.Join(dir, socketDirPrefix+"*"))
	for _, m := range made {
		if !listens[m] {
			Handle{Dir: m}.removeDir()
		}
	}
}

// removeDir removes what was made for the plugin's socket. A plugin that was killed leaves
// it behind.
func (h Handle) removeDir() {
	if strings.HasPrefix(filepath.Base(h.Dir), socketDirPrefix) {
		_ = os.RemoveAll(h.Dir) // a leftover does no harm
	}
}

// A Mark is what a host writes into the environment of a plugin that it launches. A
// later host knows the process by it, also where everything on the disk is lost. What
// the plugin starts inherits it, unless the plugin clears its environment.
type Mark struct {
	Launch   string `json:"launch"`             // of this launch alone; empty: Launch makes one up
	StateDir string `json:"stateDir,omitempty"` // the host's, absolute, without symbolic links
	Mode     string `json:"mode,omitempty"`
	Slot     string `json:"slot,omitempty"` // to distinguish Handle files
	Host     int    `json:"host,omitempty"` // the pid of the host that launched it
}

// markKey is the variable that holds the mark, as JSON.
const markKey = "POINTSMAN_PROCESS"

// NewLaunch returns a name that no other launch has.
func NewLaunch() string { return rand.Text() }

func (m Mark) environ() string {
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings and numbers have a JSON
	}
	return markKey + "=" + string(text)
}

// markIn returns the mark in an environment as /proc has it; false: there is none.
func markIn(environ string) (Mark, bool) {
	for _, variable := range strings.Split(environ, "\x00") {
		text, ok := strings.CutPrefix(variable, markKey+"=")
		if !ok {
			continue
		}
		var m Mark
		err := json.Unmarshal([]byte(text), &m)
		return m, err == nil && m.Launch != ""
	}
	return Mark{}, false
}

// ErrNotPlugin says that a process is not the plugin that was meant, or cannot be shown
// to be: it gets no signal.
var ErrNotPlugin = errors.New("it is not shown to be the plugin that was launched, so it is left alone")

// A Marked process is a plugin, or something that a plugin started, whose environment
// has the mark of a launch.
type Marked struct {
	PID    int
	Start  uint64
	Parent int
	UID    uint32
	NetNS  string // of its network namespace, as /proc names it
	Mark   Mark
}
