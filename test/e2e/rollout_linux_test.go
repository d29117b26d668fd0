// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// label is that of the nodes that Pointsman serves, by what kube-proxy leaves.
const label = "pointsman.dev/proxy"

// TestChartMove moves a node from kube-proxy and back by the commands that `helm install` prints,
// and by no others. No call fails.
func TestChartMove(t *testing.T) {
	need(t)
	needHelm(t)
	v := newMove(t, "iptables")
	v.withHelm()
	answers := v.answered()
	load := v.calledAllTheTime(v.nodes[0].pods[0], answers(0))

	out, err := v.sh("helm install pointsman " + chart + " -n kube-system --set kubeProxy.replace=true --set trial.for=5s")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	leave, move, back := v.printed(out)
	v.runs("kube-proxy", "kube-proxy")
	v.must(leave...)
	v.runs("kube-proxy", "kube-proxy")
	v.checked(move[0])
	v.must(move...)
	v.runs("pointsman", "kube-proxy")
	answers(1)
	v.must(back)
	v.runs("kube-proxy", "kube-proxy")
	answers(0)
	v.result(load, nothing)
}

// answered makes a Service, and returns what has pod j of the second node answer for it, waits
// until it does, and returns the Service's address.
func (v *move) answered() func(j int) netip.AddrPort {
	v.Helper()
	s := v.service("web")
	from := v.nodes[0].pods[0]
	return func(j int) netip.AddrPort {
		v.Helper()
		v.endpoints("web", v.nodes[1].end(j))
		v.expect(from, "tcp4", at(s, 0, 80), saw(v.nodes[1].pods[j], backend, from.addrs[0]))
		return at(s, 0, 80)
	}
}

// printed are the commands in what helm prints: those that have kube-proxy leave nodes with the
// label, those that move a node, and the one by which it comes back.
func (v *move) printed(text string) (leave, move []string, back string) {
	v.Helper()
	before, after, found := strings.Cut(strings.ReplaceAll(text, "NODE", v.nodes[0].name), "\nThen, ")
	_, back, backs := strings.Cut(after, "\nThe way back is ")
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

// checked has the first of the commands fail, on a node that cannot be served: no pod goes.
func (v *move) checked(first string) {
	v.Helper()
	mode := v.setMode("kernelspace")
	out, err := v.sh(first)
	if err == nil || !strings.Contains(out, "check-"+v.nodes[0].name) {
		v.Errorf("on a node that cannot be served: %v, %s", err, out)
	}
	v.setMode(mode)
	v.runs("kube-proxy", "kube-proxy")
}

// TestRollout has configs/rollout/rollout take both nodes. It stops at one that is not well and gives
// that one back; a second time it takes it. No call fails.
func TestRollout(t *testing.T) {
	need(t)
	v := newMove(t, "iptables")
	answers := v.answered()
	load := v.calledAllTheTime(v.nodes[0].pods[0], answers(0))
	v.must(v.steps("$", "kubeadm")[:2]...)

	// What only pods of the first node answer, within the node, the second one cannot connect to.
	local := v.service("local", func(s *corev1.Service) { s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal) })
	v.endpoints("local", v.nodes[0].end(0))
	v.expect(v.nodes[0].place, "tcp4", at(local, 0, 80), saw(v.nodes[0].pods[0], backend, v.nodes[0].addrs[0]))
	trial := v.trial("--connect=" + at(local, 0, 80).String())
	first, second := v.nodes[0].name, v.nodes[1].name
	out, err := v.sh("FOR=5s TRIAL=" + trial + " configs/rollout/rollout " + first + " " + second)
	exit := new(exec.ExitError)
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(out, "rollout: stopped. "+second+" is served as before; "+first+" keeps the label") {
		t.Fatalf("with a node that is not well it ends with %v:\n%s", err, out)
	}
	v.labelled(first)
	v.runs("pointsman", "kube-proxy")
	answers(1)

	v.must("FOR=5s configs/rollout/rollout " + second)
	v.labelled(first, second)
	v.runs("pointsman", "pointsman")
	answers(0)
	v.must("kubectl label node --all " + label + "-")
	v.runs("kube-proxy", "kube-proxy")
	answers(1)
	v.result(load, nothing)
}

// trial is the Job of the rollout with another argument, as a file.
func (v *move) trial(arg string) (file string) {
	v.Helper()
	text, err := os.ReadFile("../../configs/rollout/trial.yaml")
	edited := strings.Replace(string(text), "--metrics=127.0.0.1", "--metrics=127.0.0.1, "+arg, 1)
	if err != nil || edited == string(text) {
		v.Fatal("the trial has other arguments than it had: ", err)
	}
	file = filepath.Join(v.TempDir(), "trial.yaml")
	if err := os.WriteFile(file, []byte(edited), 0o644); err != nil {
		v.Fatal(err)
	}
	return file
}

// labelled wants just these nodes to have the label.
func (v *move) labelled(names ...string) {
	v.Helper()
	out, err := v.sh("kubectl get nodes -l " + label + "=pointsman -o 'jsonpath={.items[*].metadata.name}'")
	if err != nil || out != strings.Join(names, " ") {
		v.Errorf("the label have %q, %v; want %q", out, err, names)
	}
}
