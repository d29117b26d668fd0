// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// TestKernelPolicies: what rules of policy routing choose by an address or a mark, the kernel answers when it is
// asked for a route, and what one chooses by a port, it does not.
func TestKernelPolicies(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it adds rules of policy routing")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skipf("needs ip: %v", err)
	}
	for _, tt := range []struct{ rule, want string }{
		{"", ""},
		{"from 198.51.100.0/24 table 100", ""},
		{"fwmark 0x10/0x10 table 100", ""},
		{"iif lo table 100", ""},
		{"ipproto tcp dport 8080 table 100", "from all to all table 100 chooses routes by port and protocol (ip rule show)"},
		{"uidrange 1000-1999 table 100", "chooses routes by user (ip rule show)"},
		{"tos 0x10 table 100", "chooses routes by TOS (ip rule show)"},
	} {
		words := strings.Fields("priority 77 " + tt.rule)
		if tt.rule != "" {
			if out, err := exec.Command("ip", append([]string{"rule", "add"}, words...)...).CombinedOutput(); err != nil {
				t.Fatalf("ip rule add %s: %v: %s", tt.rule, err, out)
			}
		}
		err := policies(sdk.IPv4)
		if tt.rule != "" {
			if out, err := exec.Command("ip", append([]string{"rule", "del"}, words...)...).CombinedOutput(); err != nil {
				t.Fatalf("ip rule del %s: %v: %s", tt.rule, err, out)
			}
		}
		var unclear *unknown
		if tt.want == "" && err != nil || tt.want != "" && (!errors.As(err, &unclear) || !strings.HasPrefix(unclear.why, "policy routing: ip rule 77: ") || !strings.Contains(unclear.why, tt.want)) {
			t.Errorf("with %q: %v, want %q", tt.rule, err, tt.want)
		}
	}
	if err := policies(sdk.IPv6); err != nil {
		t.Errorf("of IPv6: %v", err)
	}
}
