// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"fmt"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A Want is what is to serve.
type Want struct {
	Mode   string
	Build  string        // identifies the binary and the options to run the mode with
	Number uint64        // grows with each time that something is asked for
	Force  bool          // also if Services or connections are lost by it
	DryRun bool          // only up to the verification, and back
	Drain  time.Duration // how long the one that leaves may take to finish what it began
}

// Facts are what a host leaves for the next one. They are written durably before the step that they are about.
type Facts struct {
	Served  string   `json:"serving"`           // the mode that serves; empty: none did
	Left    []string `json:"left,omitempty"`    // modes that do not serve and may have rules in the kernel
	Refused *Refusal `json:"refused,omitempty"` // nil: nothing that was wanted is refused

	Asked  string `json:"asked,omitempty"`  // the mode that was asked for; empty: no other than the file's
	File   string `json:"file,omitempty"`   // the mode in the config file when that was asked for
	Force  bool   `json:"force,omitempty"`  // it was asked for also if Services or connections are lost by it
	Number uint64 `json:"number,omitempty"` // Want.Number of the last ask
}

// A Refusal is a want that failed. Until it is tried again the goal is what served before.
type Refusal struct {
	Mode   string    `json:"mode"`
	Build  string    `json:"build,omitempty"`
	Number uint64    `json:"number,omitempty"` // of the Want
	Former string    `json:"former,omitempty"` // of the same mode: the build that serves in its place
	Why    string    `json:"why"`
	At     time.Time `json:"at"`
	Tries  int       `json:"tries"`
	Next   time.Time `json:"next,omitzero"` // when it is tried again; zero: when something else is wanted
}

// An ID names an instance for the life of a host.
type ID int

// An Instance is one process of a dataplane, or the connection to one that something else runs, as this host observes
// it. It stays, with Up false, while its process is away.
type Instance struct {
	ID    ID
	Mode  string
	Build string
	Doing Verb // the step that it takes part in now; zero: none

	Up     bool     // its process is there and configured
	Synced bool     // it has confirmed everything, in this session
	Role   sdk.Role // that it was given in this session; zero: none, it has the one that the kernel shows
	Shown  sdk.Role // that the kernel shows, as far as it was read; zero: that is not known

	Busy bool // another process has the writer's lock of its mode, so that it cannot write

	DiesWithProcess bool // it serves only while its process runs
	External        bool // something else runs its process: there is no second one beside it

	Verified Answer // the kernel has what it was sent, and nothing is lost by it
	Proved   Answer // connections find their way by it, in this session
	Served   bool   // it was Active and had confirmed everything when it was last seen, and its rules may serve on
	New      bool   // it never was up, and its mode had nothing in the kernel before
	Alone    bool   // it became Active while nothing else served
	Former   string // the build of the instance that it replaced, until it is proved; empty: it replaced none
	Clearing bool   // its Cleanup has begun, and is to be finished
	Cleaned  bool   // that has succeeded
	Refused  bool   // it is what failed when a want was refused

	Progress uint64    // that it reported last
	Flows    int       // connections that are left since it drains; -1: not counted yet
	Drained  time.Time // since when it drains, or has yielded
	Since    time.Time // when it came up, went away, or last made progress
	Failures int       // in a row
	Next     time.Time // it is not started, verified, proved or cleaned up before; zero: at once
	Err      error     // why its last step failed, or its process ended; nil: neither did
}

// serves reports whether it does, in this host's own sight.
func (i *Instance) serves() bool { return i != nil && i.Up && i.Synced && i.Role == sdk.Active }

// An Answer is that of a check.
type Answer uint8

// The answers.
const (
	Unknown Answer = iota
	Yes
	No
	Cannot // it cannot be checked
)

// A Verb is what a Step does.
type Verb uint8

// The verbs. A step of an instance ends within a deadline.
const (
	Start   Verb = iota + 1 // start the process or connect to it, and configure it
	Verify                  // compare the kernel with what it was sent, and find the ways that lead to the canary now
	Cut                     // make it Active and let With drain, while no update is under way
	Replace                 // of the same mode: end With, or have it yield if it dies with its process, and make it Active
	Promote                 // make it Active; nothing else serves
	Prove                   // demand that the ways to the canary lead there by it
	Drain                   // let it drain
	Cleanup                 // remove what it has in the kernel
	Stop                    // end its process, or close the connection to it; what is in the kernel stays
	Refuse                  // write down that what is wanted failed, for the reason Why
)

var verbs = [...]string{"", "start", "verify", "cut", "replace", "promote", "prove", "drain", "cleanup", "stop", "refuse"}

func (v Verb) String() string { return verbs[v] }

// movesTraffic reports whether no two such steps may go on at a time.
func (v Verb) movesTraffic() bool {
	return v == Cut || v == Replace || v == Promote || v == Prove
}

// takesTraffic reports whether an Active instance may not be Active any more after such a step.
func (v Verb) takesTraffic() bool { return v == Cut || v == Replace || v == Drain }

// A Step is what to do next.
type Step struct {
	Do   Verb
	On   ID     // zero: of Start, a new instance
	With ID     // of Cut and Replace: the instance that leaves; zero: none that is there
	Mode string // of Start
	Role sdk.Role
	Why  string // of Refuse
	Next time.Time
}

func (s Step) String() string {
	text := s.Do.String()
	if s.On != 0 {
		text += fmt.Sprintf(" %d", s.On)
	}
	if s.With != 0 {
		text += fmt.Sprintf(" with %d", s.With)
	}
	if s.Mode != "" {
		text += " " + s.Mode
	}
	if s.Role != 0 {
		text += " as " + s.Role.String()
	}
	if s.Why != "" {
		text += ": " + s.Why
	}
	return text
}
