// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
)

func TestOnlyOursAcceptReplies(t *testing.T) {
	const ours = `-m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD`
	for _, tc := range []struct {
		name  string
		rules []iptables.Rule
		want  bool
	}{
		{"only our chain accepts replies", []iptables.Rule{ours}, true},
		{"another rule accepts replies", []iptables.Rule{ours, "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"}, false},
		{"no chain of ours", []iptables.Rule{"-i cni0 -j ACCEPT"}, false},
		{"a rule accepts everything", []iptables.Rule{ours, "-j ACCEPT"}, false},
	} {
		if got := onlyOursAcceptReplies(tc.rules); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.want)
		}
	}
}
