// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A Want is the desired mode and how to reach it.
type Want struct {
	Mode   string
	Build  string        // identifies the plugin's binary and options
	Number uint64        // incremented by each request
	Force  bool          // even if Services or connections are lost
	DryRun bool          // stop after the verification and go back
	Drain  time.Duration // how long the leaving mode may drain its connections
}

// Facts are what the next host must know. They are written durably before the step that they
// describe.
type Facts struct {
	Served  string   `json:"serving"`           // the mode that serves; empty if none has served yet
	Left    []string `json:"left,omitempty"`    // modes that do not serve and may have rules in the kernel
	Refused *Refusal `json:"refused,omitempty"` // the failed Want; nil if none

	Asked  string `json:"asked,omitempty"`  // the requested mode; empty if it is the config file's
	File   string `json:"file,omitempty"`   // the mode in the config file at the time of the request
	Force  bool   `json:"force,omitempty"`  // Want.Force of the request
	Number uint64 `json:"number,omitempty"` // Want.Number of the last request
}

// A Refusal is a Want that failed. Until it is retried, the goal is the mode and build that
// served before.
type Refusal struct {
	Mode   string    `json:"mode"`
	Build  string    `json:"build,omitempty"`
	Number uint64    `json:"number,omitempty"` // of the Want
	Former string    `json:"former,omitempty"` // the build that serves instead, if it is of the same mode
	Why    string    `json:"why"`
	At     time.Time `json:"at"`
	Tries  int       `json:"tries"`
	Next   time.Time `json:"next,omitzero"` // when it is retried; zero means not before the Want changes
}

// An ID identifies an instance during the life of a host.
type ID int

// An Instance is a process of a dataplane, or the connection to a process that something else
// runs, as this host observes it. While its process is away the instance remains, with Up
// false.
type Instance struct {
	ID    ID
	Mode  string
	Build string
	Doing Verb // the step that it takes part in now; zero if none

	Up     bool     // its process runs and is configured
	Synced bool     // it has confirmed the whole state in this session
	Role   sdk.Role // assigned in this session; zero if none, then it keeps the role that the kernel shows
	Shown  sdk.Role // shown by the kernel; zero if not known

	Busy bool // it cannot write, because another process holds the writer's lock of its mode

	DiesWithProcess bool // it serves only while its process runs, as userspace does
	External        bool // something else runs its process, so a second process beside it is not possible

	Verified Answer // the kernel has what the instance was sent, and a swap to it loses nothing
	Proved   Answer // connections through it succeed, in this session
	Served   bool   // it was Active and Synced when last seen, and its rules may still serve
	New      bool   // it was never up, and its mode had nothing in the kernel before
	Alone    bool   // it became Active while nothing else served
	Former   string // the build of the instance that it replaced, until it is proved; empty if it replaced none
	Clearing bool   // its Cleanup has begun and must be finished
	Refused  bool   // it failed, and its Want was refused

	Progress uint64    // as last reported
	Flows    int       // connections left to drain; -1 if not counted yet
	Drained  time.Time // when it began to drain, or yielded
	Since    time.Time // when it came up, ended, or last made progress
	Failures int       // consecutive failures
	Next     time.Time // earliest time of the next Start, Verify, Prove or Cleanup; zero means now
	Err      error     // why its last step failed or its process ended; nil if neither
}

// serves reports whether the instance serves, as observed by this host in this session.
func (i *Instance) serves() bool { return i != nil && i.Up && i.Synced && i.Role == sdk.Active }

// An Answer is the result of a check.
type Answer uint8

// Values of Answer.
const (
	Unknown Answer = iota
	Yes
	No
	Cannot // the check is not possible
)

// A Verb is what a Step does.
type Verb uint8

// Values of Verb. Each step of an instance has a deadline.
const (
	Start   Verb = iota + 1 // start the process or connect to it, and configure it
	Verify                  // compare the kernel with what the instance was sent, and find which frontends reach the canary now
	Cut                     // make it Active and With Draining, while no update is in progress
	Replace                 // make it Active in place of With, of the same mode: stop With, or let it yield if DiesWithProcess
	Promote                 // make it Active while nothing else serves
	Prove                   // check that connections to the canary succeed through it
	Drain                   // make it Draining
	Cleanup                 // remove its rules from the kernel, and end its process
	Stop                    // end its process or close the connection; its rules stay in the kernel
	Refuse                  // record that the Want failed, for the reason Why
)

var verbs = [...]string{"", "start", "verify", "cut", "replace", "promote", "prove", "drain", "cleanup", "stop", "refuse"}

func (v Verb) String() string { return verbs[v] }

// movesTraffic reports whether the step moves traffic. Only one such step may run at a time.
func (v Verb) movesTraffic() bool {
	return v == Cut || v == Replace || v == Promote || v == Prove
}

// takesTraffic reports whether the step may end the Active role of an instance.
func (v Verb) takesTraffic() bool { return v == Cut || v == Replace || v == Drain }

// A Step is an action on one or two instances.
type Step struct {
	Do   Verb
	On   ID     // zero for a Start that creates an instance
	With ID     // for Cut and Replace: the instance that leaves; zero if it no longer exists
	Mode string // for Start
	Role sdk.Role
	Why  string    // for Refuse
	Next time.Time // for Refuse
}
