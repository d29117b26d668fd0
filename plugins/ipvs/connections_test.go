// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// ExportAffinity reports the clients that are kept at an endpoint. It leaves out connections, Services without affinity
// and virtual servers of other programs.
func TestExportAffinity(t *testing.T) {
	l := newInstance(t)
	if err := os.WriteFile(l.fake.folder+"connections", []byte(`Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData
TCP 0AB40009 0000 AC1E0029 0050 0AB40101 1F90 NONE           10780
TCP 0AB40009 9C40 AC1E0029 0050 0AB40101 1F90 ESTABLISHED      899
TCP 0AB40009 0000 AC1E002A 0050 0AB40101 1F90 NONE            10780
TCP fd00:0010:0180:0000:0000:0000:0000:0009 0000 fd00:0172:0030:0000:0000:0000:0000:0041 0050 fd00:0010:0180:0001:0000:0000:0000:0001 1F90 ASSURED           60
IP  0AB40009 0000 00000007 0000 0AB40101 1F90 NONE              60
`), 0o644); err != nil {
		t.Fatal(err)
	}
	served, err := sdktest.Parse("sticky.txtar", []byte(`In a test.
-- services --
ns1/web:http tcp
  cluster-ip 172.30.0.41:80
  cluster-ip [fd00:172:30::41]:80
  endpoint   10.180.1.1:8080
  endpoint   [fd00:10:180:1::1]:8080
  affinity   3h
ns1/other:http tcp
  cluster-ip 172.30.0.42:80
  endpoint   10.180.1.1:8080
-- packets --
10.180.0.9 > 172.30.0.41:80 = 10.180.1.1:8080
`))
	if err != nil {
		t.Fatal(err)
	}
	l.full(served)
	var answer []sdk.AffinityEntry
	if err := l.plugin.ExportAffinity(t.Context(), func(s sdk.AffinityEntry) error { answer = append(answer, s); return nil }); err != nil {
		t.Fatal(err)
	}
	web := func(f sdk.Family) sdk.Name {
		return sdk.Name{Namespace: "ns1", Service: "web", Port: "http", Protocol: sdk.TCP, Family: f}
	}
	want := []sdk.AffinityEntry{
		{Name: web(sdk.IPv4), Client: netip.MustParseAddr("10.180.0.9"), Endpoint: netip.MustParseAddrPort("10.180.1.1:8080"), Left: 10780 * time.Second},
		{Name: web(sdk.IPv6), Client: netip.MustParseAddr("fd00:10:180::9"), Endpoint: netip.MustParseAddrPort("[fd00:10:180:1::1]:8080"), Left: time.Minute},
	}
	if !slices.Equal(answer, want) {
		t.Errorf("exported %v", answer)
	}
	if err := l.plugin.ImportAffinity(t.Context(), answer); err == nil {
		t.Error("ImportAffinity returned no error, although IPVS cannot import clients")
	}
}
