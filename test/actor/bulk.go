// SPDX-License-Identifier: Apache-2.0

package actor

import (
	"fmt"
	"net/netip"

	"github.com/pointsman/pointsman/sdk"
)

// Bulk returns a Full update of services Services with so many endpoints each, every tenth of them in IPv6.
func Bulk(services, endpoints int) sdk.Update {
	u := sdk.Update{To: 1, Full: true, Set: make([]sdk.Service, services)}
	for i := range u.Set {
		u.Set[i] = BulkService(i, endpoints)
	}
	return u
}

// BulkService returns Bulk's Service with that number.
func BulkService(i, endpoints int) sdk.Service {
	family := sdk.IPv4
	if i%10 == 9 {
		family = sdk.IPv6
	}
	svc := sdk.Service{
		Name: sdk.Name{Namespace: fmt.Sprintf("namespace-%d", i%100), Service: fmt.Sprintf("service-%d", i), Port: "http", Protocol: sdk.TCP, Family: family},
		Frontends: []sdk.Frontend{{
			Kind: sdk.ClusterIP, Policy: sdk.Cluster,
			Addr: netip.AddrPortFrom(bulkAddr(family, 172, i), 80),
		}},
	}
	for n := range endpoints {
		svc.Cluster = append(svc.Cluster, sdk.Endpoint{
			Addr:   netip.AddrPortFrom(bulkAddr(family, 10, i*endpoints+n), 8080),
			OnNode: n%5 == 0,
		})
	}
	return svc
}

func bulkAddr(family sdk.Family, first byte, n int) netip.Addr {
	if family == sdk.IPv6 {
		return netip.AddrFrom16([16]byte{0xfd, first, 12: byte(n >> 24), 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)})
	}
	return netip.AddrFrom4([4]byte{first, byte(n >> 16), byte(n >> 8), byte(n)})
}
