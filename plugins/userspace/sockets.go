// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
)

// A process is what both ways of serving share.
type process struct {
	relay     *relay.Relay
	addresses func() ([]address, error) // of this machine
	log       *slog.Logger
	step      func() // says that the present call gets on
	handover  handover

	// affinity are clients of Services that are still to come, which another dataplane
	// served before.
	affinity map[sdk.Name][]sdk.AffinityEntry
}

// sockets are those of one IP family, and the Services that they are for. What is desired
// stands in the table; a socket and a value that connections see follow when a plan is
// applied.
type sockets struct {
	*process
	family  sdk.Family
	machine *machine
	role    sdk.Role // that was set last
	writes  bool     // this process may open sockets, and write

	table    table
	served   map[sdk.Name]*desired // what connections see
	services map[sdk.Name]*relay.Service
	open     map[place]relay.Socket
	retired  map[place]relay.Socket // what they have begun still needs them
	owed     map[place]error        // wanted, and could not be opened
	changed  map[sdk.Name]bool      // what is desired may not be what connections see
	touched  map[place]bool         // it may be another socket that is to stand here, or other rules
	looked   time.Time              // when the machine's addresses were read last
	expired  time.Time              // when affinity was forgotten last
}

func newSockets(p *process, f sdk.Family) sockets {
	s := sockets{process: p, family: f, machine: newMachine(sdk.Node{}, nil)}
	s.forget()
	return s
}

// forget is the state of a process that has served nothing.
func (s *sockets) forget() {
	s.role = 0
	s.table = newTable()
	s.served = make(map[sdk.Name]*desired)
	s.services = make(map[sdk.Name]*relay.Service)
	s.open = make(map[place]relay.Socket)
	s.retired = make(map[place]relay.Socket)
	s.owed = make(map[place]error)
	s.changed = make(map[sdk.Name]bool)
	s.touched = make(map[place]bool)
}

// close closes all sockets, and forgets what they served.
func (s *sockets) close() {
	for _, socket := range s.open {
		socket.Close()
	}
	for _, socket := range s.retired {
		socket.Close()
	}
	s.forget()
}

// core are the sockets, whatever leads to them.
func (s *sockets) core() *sockets { return s }

// Serves reports whether f is the IP family of these sockets.
func (s *sockets) Serves(f sdk.Family) bool { return f == s.family }

// Pieces are what Services come to, as it was put.
func (s *sockets) Pieces() map[sdk.Name]*desired { return s.table.desired }

// Keep is what connections see of a Service. Nothing of it outlives the process.
func (s *sockets) Keep(name sdk.Name) *desired { return s.served[name] }

// Put says what Services come to.
func (s *sockets) Put(pieces map[sdk.Name]*desired) {
	for name, d := range pieces {
		s.put(name, d)
	}
}

func (s *sockets) put(name sdk.Name, d *desired) {
	s.step()
	s.changed[name] = true
	for _, p := range s.table.put(name, d) {
		s.touched[p] = true
	}
}

// touchAll has the next plan look at every place.
func (s *sockets) touchAll() {
	for p := range s.table.places {
		s.touched[p] = true
	}
	for p := range s.open {
		s.touched[p] = true
	}
}

// setMachine makes m the node, for the relay too.
func (s *sockets) setMachine(m *machine) {
	s.machine = m
	s.relay.SetNode(m.node, m.own)
}

// plan is what the places that were touched need now.
func (s *sockets) plan() []step {
	return plan(slices.AppendSeq(make([]place, 0, len(s.touched)), maps.Keys(s.touched)), &s.table, func(p place) (holder, bool) {
		s.step()
		socket := s.open[p]
		if socket == nil {
			return holder{}, false
		}
		if t := socket.Target(); t != nil && t.Service != s.services[t.Service.Name()] {
			return holder{}, true // resumed after its Service was removed: one of that name is another
		}
		return holderOf(socket), true
	})
}

// This file is for what no call tells.

// due reports whether it is time to look at what no call tells: addresses that come and go,
// places that become free, clients whose time is over.
func (s *sockets) due() bool {
	now := time.Now()
	if now.Sub(s.expired) >= affinityPeriod {
		s.expired = now
		s.expireAffinity(now)
	}
	if now.Sub(s.looked) < addressPeriod {
		return false
	}
	s.looked = now
	maps.DeleteFunc(s.retired, func(_ place, socket relay.Socket) bool { return !socket.Drain() })
	return true
}

// again has the next plan try the places that could not be opened, if there are any.
func (s *sockets) again() bool {
	for p := range s.owed {
		s.touched[p] = true
	}
	return len(s.owed) > 0
}

// How often the machine's addresses are read again, and how often clients whose
// time is over are forgotten.
const (
	addressPeriod  = 2 * time.Second
	affinityPeriod = 30 * time.Second
)

// moved reads the machine's addresses. If what serves depends on those that have come or
// gone, it reports that; else only the relay has to know of them.
func (s *sockets) moved(matters func(*machine) bool) bool {
	own, err := s.addresses()
	if err != nil {
		s.log.Warn("node ports stay at the addresses known so far", "err", err)
		return false
	}
	if slices.Equal(own, s.machine.addresses) {
		return false
	}
	now := newMachine(s.machine.node, own)
	if matters(now) {
		return true
	}
	s.setMachine(now)
	return false
}

func (s *sockets) expireAffinity(now time.Time) {
	for _, service := range s.services {
		service.ExpireAffinity(now)
	}
}

// read makes what n and the machine's addresses say the node.
func (s *sockets) read(n sdk.Node) error {
	own, err := s.addresses()
	if err != nil {
		return err
	}
	s.setMachine(newMachine(n, own))
	return nil
}
