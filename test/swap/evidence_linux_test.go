// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"os/exec"
	"slices"
	"strings"
	"syscall"
)

// evidence is what the node's kernel can say of connections that were turned away a
// moment ago, where some were: where it sent them, which it remembers for 10 s, and
// what listens there.
func evidence(failed []string) string {
	refused := func(text string) bool { return strings.Contains(text, syscall.ECONNREFUSED.Error()) }
	if !slices.ContainsFunc(failed, refused) {
		return ""
	}
	var text strings.Builder
	for _, line := range []string{
		"conntrack -L -p tcp --state CLOSE",
		"conntrack -S",
		"ss -Hltnp",
		"iptables-nft-save -c -t nat",
		"nstat -az TcpEstabResets TcpOutRsts TcpExtListenDrops TcpExtTCPAbortOnData",
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
