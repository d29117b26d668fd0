// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"strings"
)

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
