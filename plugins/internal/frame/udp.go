// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/duty"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
)

var families = []sdk.Family{sdk.IPv4, sdk.IPv6}

// rounds count what it came to, to look for UDP flows that lead nowhere, by IP family.
type rounds map[sdk.Family]*conntrack.Rounds

func newRounds() rounds {
	all := make(rounds)
	for _, of := range families {
		all[of] = conntrack.NewRounds(of)
	}
	return all
}

// forget ends UDP flows that the changes left leading nowhere.
func (d *Dataplane[P]) forget(c sdk.Changes, failed []sdk.Failure) error {
	services := duty.UDP(d.state, c, failed)
	if len(services) == 0 {
		return nil
	}
	for _, of := range families {
		f := d.serving(of)
		if f == nil {
			continue
		}
		forgetter, ok := f.Family.(Forgetter)
		if !ok {
			continue
		}
		began := time.Now()
		n, err := forgetter.Forget(of, ofFamily(services, of), d.status.Step)
		f.rounds[of].Count(time.Since(began), n)
		if err != nil {
			return err
		}
		if n > 0 {
			d.log.Info("forgot udp flows", "family", of, "flows", n)
		}
	}
	return nil
}

func ofFamily(services []sdk.Service, of sdk.Family) []sdk.Service {
	return slices.DeleteFunc(slices.Clone(services), func(s sdk.Service) bool { return s.Name.Family != of })
}
