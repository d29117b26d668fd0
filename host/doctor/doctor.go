// SPDX-License-Identifier: Apache-2.0

/*
Package doctor checks what Services on a node depend on and no dataplane decides: kernel parameters,
the connection tracking table, the route to ClusterIPs, ports that other processes listen on, and the
host's state directory. It only reads, and needs no privilege.
*/
package doctor

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/pointsman/pointsman/host/admin"
)

// A Diagnosis is the answer of `pointsman doctor`.
type Diagnosis struct {
	admin.Meta
	Result Result    `json:"result"` // the worst of Checks
	Checks []Finding `json:"checks"`
}

// NewDiagnosis returns the answer that consists of all findings.
func NewDiagnosis(all []Finding) Diagnosis {
	d := Diagnosis{Meta: admin.Meta{APIVersion: admin.APIVersion, Kind: "Diagnosis"}, Result: OK, Checks: all}
	for _, f := range all {
		if f.Result == Fail || f.Result == Warn && d.Result == OK {
			d.Result = f.Result // Unknown is no worse than OK
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

// A Result is the result of a check in one word.
type Result string

// The results.
const (
	OK      Result = "ok"
	Unknown Result = "unknown" // the check could not be made
	Warn    Result = "warn"    // some connections to Services may fail
	Fail    Result = "fail"    // connections to Services fail
)

// New returns one finding, as a list.
func New(check string, result Result, try, format string, args ...any) []Finding {
	return []Finding{{check, result, fmt.Sprintf(format, args...), try}}
}

// A Node is what the checks of a node need to know.
type Node struct {
	Proc     string          // where the proc file system is: /proc
	Mode     string          // the dataplane that serves
	Services []admin.Service // as the running host has them
	StateDir string

	Interfaces map[netip.Addr]string // as Interfaces returns them
}

// ipvsDevice has the addresses of Services in mode ipvs, Pointsman's and kube-proxy's.
const ipvsDevice = "kube-ipvs0"

// Interfaces returns the addresses of this node, each with the name of its interface. Those of loopback and of mode ipvs
// are left out.
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
