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
		{"a node that has leave", []iptables.Rule{ours}, true},
		{"one that lets replies through", []iptables.Rule{ours, "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"}, false},
		{"one that never had leave", []iptables.Rule{"-i cni0 -j ACCEPT"}, false},
		{"an open chain", []iptables.Rule{ours, "-j ACCEPT"}, false},
	} {
		if got := onlyOursAcceptReplies(tc.rules); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.want)
		}
	}
}
