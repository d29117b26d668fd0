// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// ExportAffinity tells which clients the kernel keeps at an endpoint: it lists them among its
// connections.
func (p *plugin) ExportAffinity(ctx context.Context, tell func(sdk.AffinityEntry) error) error {
	return p.Do(ctx, func(map[sdk.Name]sdk.Service) error { return p.exportAffinity(ctx, tell) })
}

func (p *plugin) exportAffinity(ctx context.Context, tell func(sdk.AffinityEntry) error) error {
	list, err := os.Open(p.machine.connections)
	if err != nil {
		return fmt.Errorf("read which client keeps to which endpoint: %w", err)
	}
	defer list.Close()
	for lines := bufio.NewScanner(list); ; {
		if !lines.Scan() {
			return lines.Err()
		}
		at, entry, ok := affinityIn(lines.Text())
		if !ok {
			continue
		}
		if entry.Name, ok = p.ownerOf(at); !ok {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := tell(entry); err != nil {
			return err
		}
	}
}

// ImportAffinity cannot have the kernel keep a client: it learns that from packets alone.
func (p *plugin) ImportAffinity(_ context.Context, entries []sdk.AffinityEntry) error {
	return &sdk.Refusal{Field: "affinity", Why: fmt.Sprintf("ipvs learns from packets alone who keeps to an endpoint: %d clients may be sent to another once", len(entries))}
}

// ownerOf is the Service that has a virtual service, if it has affinity.
func (p *plugin) ownerOf(at serviceKey) (sdk.Name, bool) {
	for _, f := range p.session.families {
		if c, ok := f.objects.owner(at); ok && c.value.scheduling.affinity > 0 {
			return c.name, true
		}
	}
	return sdk.Name{}, false
}

// affinityIn reads a line of the kernel's list, if it is about a client that is kept at an
// endpoint. It names no port of that client's:
//
//	Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires
//	TCP 0AB40009 0000 AC1E0029 0050 0AB40101 1F90 NONE           10780
func affinityIn(line string) (serviceKey, sdk.AffinityEntry, bool) {
	words := strings.Fields(line)
	if len(words) < 9 || words[2] != "0000" {
		return serviceKey{}, sdk.AffinityEntry{}, false
	}
	client, ok1 := hexAddr(words[1], words[2])
	at, ok2 := hexAddr(words[3], words[4])
	dest, ok3 := hexAddr(words[5], words[6])
	left, err := strconv.Atoi(words[8])
	protocol, ok := protocolOf(words[0])
	if !ok || !ok1 || !ok2 || !ok3 || err != nil {
		return serviceKey{}, sdk.AffinityEntry{}, false
	}
	return serviceKey{family: sdk.FamilyOf(at.Addr()), protocol: protocol, addr: at},
		sdk.AffinityEntry{Client: client.Addr(), Endpoint: dest, Left: time.Duration(left) * time.Second}, true
}

// hexAddr reads an address and a port as the kernel writes them there: IPv6 with its
// colons.
func hexAddr(addr, port string) (netip.AddrPort, bool) {
	raw, err := hex.DecodeString(strings.ReplaceAll(addr, ":", ""))
	if err != nil {
		return netip.AddrPort{}, false
	}
	ip, ok := netip.AddrFromSlice(raw)
	n, err := strconv.ParseUint(port, 16, 16)
	return netip.AddrPortFrom(ip, uint16(n)), ok && err == nil
}
