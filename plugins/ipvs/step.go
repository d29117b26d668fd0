// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/sdk"
)

// A verb is one thing that can be done to the kernel.
type verb uint8

const (
	makeSet    verb = iota + 1
	replaceSet      // with one of ours, filled
	addEntry
	removeEntry
	addService
	setService
	removeService
	addDest
	weighDest
	removeDest
	bind
	unbind
	makeDevice
	writeRules
)

// onService reports whether it is done to a virtual service.
func (v verb) onService() bool { return v >= addService && v <= removeDest }

// A step is one thing to do, and to what.
type step struct {
	verb       verb
	set        set
	entry      entry
	note       note
	service    serviceKey
	scheduling scheduling
	dest       netip.AddrPort
	weight     int
	addr       netip.Addr
	rules      ruleset.Plan
	family     sdk.Family
	fill       map[entry]note // what a set has when it takes another's place
}

// A plan is steps in the order in which they are taken.
type plan []step

// String is the step for people, in the words of the tools that they would use.
func (s step) String() string {
	switch s.verb {
	case makeSet, replaceSet:
		return fmt.Sprintf("%s set %s", map[verb]string{makeSet: "make", replaceSet: "replace"}[s.verb], s.set.in(s.family))
	case addEntry:
		return strings.Replace(s.entry.command(s.note), "add -exist", "add to", 1)
	case removeEntry:
		return fmt.Sprintf("remove from %s %s", s.entry.set.in(s.entry.family), s.entry)
	case addService, setService:
		return fmt.Sprintf("%s server %s %s", map[verb]string{addService: "add", setService: "set"}[s.verb], s.service, s.scheduling)
	case removeService:
		return fmt.Sprintf("remove server %s", s.service)
	case addDest:
		return fmt.Sprintf("add real %s on %s weight %d", s.dest, s.service, s.weight)
	case weighDest:
		return fmt.Sprintf("weigh real %s on %s %d", s.dest, s.service, s.weight)
	case removeDest:
		return fmt.Sprintf("remove real %s on %s", s.dest, s.service)
	case bind, unbind:
		return fmt.Sprintf("%s %s", map[verb]string{bind: "bind", unbind: "unbind"}[s.verb], s.addr)
	case makeDevice:
		return "make device " + device
	}
	return strings.Join(s.rules.Steps(), "; ")
}

// steps is the plan for people, a step a line.
func (p plan) steps() []string {
	lines := make([]string, len(p))
	for i, s := range p {
		lines[i] = s.String()
	}
	return lines
}

func (p plan) String() string { return strings.Join(p.steps(), "\n") }
