// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/ipvslist"
	"github.com/pointsman/pointsman/sdk"
)

// ExportAffinity reports the clients that the kernel keeps at an endpoint. It reads them from the list of IPVS
// connections, which has an entry for each client with affinity.
func (p *plugin) ExportAffinity(ctx context.Context, tell func(sdk.AffinityEntry) error) error {
	return p.Do(ctx, func(map[sdk.Name]sdk.Service) error {
		sticky := p.session.affinityServers()
		list, err := os.Open(p.machine.connections)
		if err != nil {
			return fmt.Errorf("read the connections: %w", err)
		}
		defer list.Close()
		lines := bufio.NewScanner(list)
		for lines.Scan() && ctx.Err() == nil {
			at, entry, ok := parseAffinity(lines.Text())
			if entry.Name = sticky[at]; !ok || entry.Name == (sdk.Name{}) {
				continue
			}
			if err := tell(entry); err != nil {
				return err
			}
		}
		return errors.Join(ctx.Err(), lines.Err())
	})
}

// ImportAffinity always fails: IPVS has no way to add a client and learns clients only from packets.
func (p *plugin) ImportAffinity(_ context.Context, entries []sdk.AffinityEntry) error {
	return &sdk.Refusal{Field: "affinity", Why: fmt.Sprintf("ipvs learns only from packets which client keeps which endpoint: %d clients may be sent to another endpoint once", len(entries))}
}

// affinityServers returns the virtual servers with affinity, and their Services.
func (s *session) affinityServers() map[serviceKey]sdk.Name {
	all := make(map[serviceKey]sdk.Name)
	for _, f := range s.families {
		for name, p := range f.Desired() {
			for _, v := range p.servers {
				if v.affinity > 0 && !v.covered {
					all[v.at] = name
				}
			}
		}
	}
	return all
}

// parseAffinity parses a line of the kernel's list, and returns ok if the line keeps a client at an endpoint.
// Such a line has client port 0:
//
//	Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires
//	TCP 0AB40009 0000 AC1E0029 0050 0AB40101 1F90 NONE           10780
func parseAffinity(line string) (at serviceKey, entry sdk.AffinityEntry, ok bool) {
	words := strings.Fields(line)
	if len(words) < 9 {
		return at, entry, false
	}
	var ends [3]netip.AddrPort
	var errs [4]error
	for i := range ends {
		ends[i], errs[i] = ipvslist.Addr(words[1+2*i], words[2+2*i])
	}
	expires, err := strconv.Atoi(words[8])
	errs[3] = err
	at = serviceKey{family: sdk.FamilyOf(ends[1].Addr()), protocol: ipvslist.Protocol(words[0]), addr: ends[1]}
	entry = sdk.AffinityEntry{Client: ends[0].Addr(), Endpoint: ends[2], Left: time.Duration(expires) * time.Second}
	return at, entry, at.protocol != 0 && ends[0].Port() == 0 && errors.Join(errs[:]...) == nil
}
