// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"slices"
	"testing"
)

// TestLeftOfIPVS: nothing of kube-proxy's ipvs mode is left over if mode ipvs takes it over, and its own chains
// keep nothing. In mode iptables, the objects of IPVS are left over. The items are those that the plugins name on
// a node where kube-proxy v1.37.2 serves in ipvs mode.
func TestLeftOfIPVS(t *testing.T) {
	const (
		services  = "iptables-legacy: remove nat KUBE-SERVICES"
		balancer  = "iptables-legacy: remove nat KUBE-LOAD-BALANCER"
		device    = "device kube-ipvs0 with 2 addresses"
		postroute = "ipv4 legacy: remove nat KUBE-POSTROUTING"
		kept      = "ipv4 legacy: keep nat KUBE-MARK-MASQ and KUBE-POSTROUTING: a rule of KUBE-LOAD-BALANCER leads to KUBE-MARK-MASQ"
		foreign   = "ipv4 legacy: keep nat KUBE-MARK-MASQ and KUBE-POSTROUTING: a rule of CNI-DN-1 leads to KUBE-MARK-MASQ"
	)
	byIPVS := []string{device, services, balancer, postroute}
	for _, c := range []struct {
		why                           string
		named, taken, removable, kept []string
	}{
		{"ipvs", []string{services, kept, services, kept}, byIPVS, nil, nil},
		{"iptables", byIPVS, []string{services, kept}, []string{device, balancer}, nil},
		{"userspace", append([]string{services, kept}, byIPVS...), nil, []string{device, balancer, services}, nil},
		{"ipvs, beside portmap", []string{services, foreign}, byIPVS, nil, []string{foreign}},
	} {
		l := Leftovers{Removable: slices.Clone(c.named)}
		l.classify(c.taken)
		if !slices.Equal(l.Removable, c.removable) || !slices.Equal(l.Kept, c.kept) {
			t.Errorf("mode %s: left over is %q, and kept %q", c.why, l.Removable, l.Kept)
		}
	}
}
