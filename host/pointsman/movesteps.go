// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// moveSteps are what is to be done one after the other, from kube-proxy in one mode to a plugin, and
// at last the way back. left says that kube-proxy leaves something over.
func moveSteps(from, to string, inPod, left bool) []string {
	stop, start := "stop kube-proxy, and see that nothing starts it again; what it wrote stays, and goes on serving", "pointsman run --config FILE, with kube-proxy's own file"
	if inPod {
		stop, start = "take kube-proxy's pod off this node; what it wrote stays, and goes on serving (docs/install.md#kubeadm)", "have Pointsman's pod begin here, with kube-proxy's own ConfigMap"
	}
	if to != from {
		start += ", and --mode " + to
	}
	steps := []string{stop, start, "pointsman status --wait 3m, until it exits 0"}
	switch {
	case left && from == "ipvs" && to != from:
		steps = append(steps, "pointsman cleanup --kube-proxy, for what is left over, when the connections are over that kube-proxy's virtual services still carry: it ends them")
	case left:
		steps = append(steps, "pointsman cleanup --kube-proxy, for what is left over")
	}
	back := "the way back: "
	if to != from {
		back += "pointsman mode swap " + from + "; then "
	}
	switch from {
	case "nftables": // whose tables are not kube-proxy's
		return append(steps, back+"end Pointsman, start kube-proxy again, and once its tables are there pointsman cleanup")
	case "ipvs": // whose sets and rules are not
		return append(steps, back+"end Pointsman, start kube-proxy again, which takes over the virtual services, and once its rules are there pointsman-dataplane-ipvs cleanup; no pointsman cleanup, which would remove chains that kube-proxy has too")
	}
	return append(steps, back+"end Pointsman and start kube-proxy again, which takes over what stands; no pointsman cleanup, which would remove that")
}

// unusedOptions says which of kube-proxy's settings of its ipvs mode do not count where another one
// serves; options are what they amount to. Of its other modes there are none, but for node ports on
// 127.0.0.1, which loopbackEnds sees.
func unusedOptions(from, to string, options []byte) (lines []string) {
	var said map[string]any
	if from != "ipvs" || to == from || json.Unmarshal(options, &said) != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(said)) {
		if value := fmt.Sprint(said[name]); !slices.Contains([]string{"", "rr", "0s", "false", "[]", "<nil>"}, value) {
			lines = append(lines, fmt.Sprintf("ipvs.%s: no effect in mode %s", name, to))
		}
	}
	return lines
}
