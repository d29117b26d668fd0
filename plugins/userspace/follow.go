// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"maps"
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
)

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
		if service.Value().Affinity > 0 {
			service.ExpireAffinity(now)
		}
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
