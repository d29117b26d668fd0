// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"os/exec"
	"strings"
)

// evidence returns what the node's kernel knows of calls that have just failed: where it sent the refused connections,
// which it remembers for 10 s, what listens there, and what it has dropped, since a lost SYN is sent again a second
// later.
func evidence(failed []string) string {
	if len(failed) == 0 {
		return ""
	}
	var text strings.Builder
	for _, line := range []string{
		"conntrack -L -p tcp --state CLOSE",
		"conntrack -S",
		"ss -Hltnp",
		"iptables-nft-save -c -t nat",
		"nstat -az TcpEstabResets TcpOutRsts TcpExtListenDrops TcpExtListenOverflows TcpExtTCPAbortOnData TcpExtTCPSynRetrans TcpExtTCPTimeouts",
	} {
		words := strings.Fields(line)
		out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
		text.WriteString(line + ":\n" + string(out))
		if err != nil {
			text.WriteString(err.Error() + "\n")
		}
	}
	return text.String()
}
