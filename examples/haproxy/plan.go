// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// A running is a section as a process of HAProxy has it.
type running struct {
	section
	resting []netip.AddrPort // servers that get no new connections, and are there for those they have
}

// Steps lead from what runs to what is wanted.
type steps struct {
	reload   []string              // why another process is needed, a line for each Service; none: it is not
	commands map[sdk.Name][]string // of the runtime API, in order
}

// plan returns how to get from what runs to what is wanted, for these Services.
func plan(have map[sdk.Name]running, wanted map[sdk.Name]section, touched []sdk.Name) steps {
	p := steps{commands: make(map[sdk.Name][]string)}
	for _, n := range touched {
		was, runs := have[n]
		s, stays := wanted[n]
		switch {
		case !runs && !stays:
		case !runs:
			p.reload = append(p.reload, fmt.Sprintf("reload with section %s", sectionName(n)))
		case !stays:
			p.reload = append(p.reload, fmt.Sprintf("reload without section %s", sectionName(n)))
		case !was.sameButEndpoints(s):
			p.reload = append(p.reload, fmt.Sprintf("reload with another section %s", sectionName(n)))
		default:
			if commands := was.toward(s.Endpoints); len(commands) > 0 {
				p.commands[n] = commands
			}
		}
	}
	return p
}

// toward returns the commands by which a section gets these endpoints: it adds before it removes.
func (r running) toward(endpoints []netip.AddrPort) (commands []string) {
	do := func(format string, at netip.AddrPort) {
		id := sectionName(r.Name) + "/" + serverName(at)
		commands = append(commands, fmt.Sprintf(format, id, at))
	}
	for _, at := range endpoints {
		switch {
		case slices.Contains(r.Endpoints, at):
		case slices.Contains(r.resting, at):
			do("set server %[1]s state ready", at)
		default:
			do("add server %[1]s %[2]s", at)
			do("enable server %[1]s", at)
		}
	}
	for _, at := range r.Endpoints {
		if !slices.Contains(endpoints, at) {
			do("set server %[1]s state maint", at)
			do("del server %[1]s", at) // HAProxy refuses that while it has connections
		}
	}
	return commands
}

// forgets returns the commands that remove what rests, as far as it has no connections any more.
func (r running) forgets() (commands []string) {
	for _, at := range r.resting {
		commands = append(commands, fmt.Sprintf("del server %s/%s", sectionName(r.Name), serverName(at)))
	}
	return commands
}

// lines are the steps for people.
func (p steps) lines() []string {
	lines := slices.Clone(p.reload)
	for _, commands := range p.commands {
		lines = append(lines, commands...)
	}
	slices.Sort(lines[len(p.reload):])
	return lines
}
