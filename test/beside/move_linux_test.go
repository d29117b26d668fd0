// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/test/cluster"
)

const chart = "charts/pointsman"

// TestChartMove moves a node from kube-proxy and back by exactly the commands that `helm install` prints. No call
// fails.
func TestChartMove(t *testing.T) {
	cluster.Need(t)
	bin, err := filepath.Abs("../../bin")
	if err == nil {
		_, err = os.Stat(bin + "/helm")
	}
	if err != nil {
		t.Skip("needs helm: make bin/helm builds it, in some minutes")
	}
	v, home := newMove(t, "iptables"), t.TempDir()
	v.shell = append(v.shell, "PATH="+bin+":"+bin+"/peers:"+os.Getenv("PATH"), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	web, done := v.serve("web", on("far0", 8080))
	answers := func(place string) { v.lead(&web, on(place, 8080)) }
	out, err := v.sh("helm install pointsman " + chart + " -n kube-system --set kubeProxy.replace=true")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	leave, move, back := v.commandsIn(out)
	v.expectPods("kube-proxy", "kube-proxy")
	v.must(leave...)
	v.expectPods("kube-proxy", "kube-proxy")
	v.expectRefused(func() {
		if out, err := v.sh(move[0]); err == nil || !strings.Contains(out, "check-"+here) {
			t.Errorf("on a node that cannot be served: %v, %s", err, out)
		}
	})
	v.must(move...)
	v.expectPods("pointsman", "kube-proxy")
	answers("far1")
	v.must(back)
	v.expectPods("kube-proxy", "kube-proxy")
	answers("far0")
	done()
}

// commandsIn returns the commands in helm's output: those that restrict kube-proxy to nodes without the label, those
// that move a node, and the one that moves it back.
func (v *move) commandsIn(text string) (leave, move []string, back string) {
	v.Helper()
	before, after, found := strings.Cut(strings.ReplaceAll(text, "NODE", here), "\nThen move ")
	_, back, backs := strings.Cut(after, "\nTo return a node to kube-proxy: ")
	command := regexp.MustCompile(`(?m)^  ((?:kubectl|helm) .*)$`)
	for _, m := range command.FindAllStringSubmatch(before, -1) {
		leave = append(leave, m[1])
	}
	for _, m := range command.FindAllStringSubmatch(after, -1) {
		move = append(move, m[1])
	}
	if !found || !backs || len(leave) != 2 || len(move) != 4 {
		v.Fatalf("helm prints %s", text)
	}
	back, _, _ = strings.Cut(back, "\n")
	return leave, move, back
}
