// SPDX-License-Identifier: Apache-2.0

/*
Package doctor checks what Services depend on but no dataplane controls: kernel parameters, the connection tracking
table, the route to ClusterIPs, ports on which other processes listen, and the host's state directory. It only reads,
never changes the node, and needs no privileges. Start reading at Node.Examine.
*/
package doctor

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/pointsman/pointsman/host/admin"
)

// A Diagnosis is the output of `pointsman doctor`.
type Diagnosis struct {
	admin.Meta
	Result Result    `json:"result"` // the worst result in Checks
	Checks []Finding `json:"checks"`
}

// NewDiagnosis returns the diagnosis for all findings.
func NewDiagnosis(all []Finding) Diagnosis {
	d := Diagnosis{Meta: admin.Meta{APIVersion: admin.APIVersion, Kind: "Diagnosis"}, Result: OK, Checks: all}
	for _, f := range all {
		if f.Result == Fail || f.Result == Warn && d.Result == OK {
			d.Result = f.Result // Unknown counts as OK
		}
	}
	return d
}

// A Finding is the result of one check.
type Finding struct {
	Check  string `json:"check"`
	Result Result `json:"result"`
	Why    string `json:"why"`
	Try    string `json:"try,omitempty"`
}

// A Result is the result of a check.
type Result string

// Values of Result.
const (
	OK      Result = "ok"
	Unknown Result = "unknown" // the check was not possible
	Warn    Result = "warn"    // some connections to Services may fail
	Fail    Result = "fail"    // connections to Services fail
)

// New returns a list with one finding.
func New(check string, result Result, try, format string, args ...any) []Finding {
	return []Finding{{check, result, fmt.Sprintf(format, args...), try}}
}

// A Node is the input of the checks.
type Node struct {
	Proc     string          // where the proc file system is mounted: /proc
	Mode     string          // the serving mode
	Services []admin.Service // from the running host
	StateDir string
}

// ipvsDevice holds the addresses of Services in mode ipvs, of Pointsman and of kube-proxy.
const ipvsDevice = "kube-ipvs0"

// Interfaces returns the addresses of this node with the names of their interfaces, without
// loopback addresses and those of mode ipvs.
func Interfaces() map[netip.Addr]string {
	all := make(map[netip.Addr]string)
	list, _ := net.Interfaces() // an error leaves the list empty
	for _, i := range list {
		if i.Name == ipvsDevice {
			continue
		}
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLoopback() {
				all[p.Addr()] = i.Name
			}
		}
	}
	return all
}
