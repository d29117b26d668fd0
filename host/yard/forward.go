// SPDX-License-Identifier: Apache-2.0

package yard

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// errForward is why a mode that forwards is not left for one that does not.
var errForward = errors.New("the policy of FORWARD is DROP, and nothing but KUBE-FORWARD lets replies through, which would go: " +
	"pods may lose what they reach outside the Services; try: iptables -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")

// relies says so if this node forwards by leave of the dataplane that is to go. A
// relay forwards nothing, and so does not give that leave.
func relies(ctx context.Context, from, to sdk.Description) error {
	relay := func(d sdk.Description) bool { return slices.Contains(d.Limits, sdk.LimitDiesWithProcess) }
	if relay(from) || !relay(to) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, tool := range []string{"iptables", "ip6tables"} {
		rules, err := exec.CommandContext(ctx, tool, "-w", "4", "-S", "FORWARD").Output()
		if err == nil && forwardsByLeave(string(rules)) {
			return errForward
		}
	}
	return nil // also where there is no such tool: then no such rule was made by it
}

// forwardsByLeave reports whether the rules of FORWARD, as the tool lists them, drop
// replies but for KUBE-FORWARD.
func forwardsByLeave(rules string) bool {
	drops, byLeave := false, false
	for line := range strings.Lines(rules) {
		line = strings.TrimSpace(line)
		switch {
		case line == "-P FORWARD DROP":
			drops = true
		case strings.HasSuffix(line, "-j KUBE-FORWARD"):
			byLeave = true
		case strings.HasSuffix(line, "-j ACCEPT") && strings.Contains(line, "ESTABLISHED"), line == "-A FORWARD -j ACCEPT":
			return false
		}
	}
	return drops && byLeave
}
