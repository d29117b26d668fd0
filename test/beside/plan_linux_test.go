// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/test/traced"
)

// TestKernelPlanFromKubeProxy: beside a kube-proxy that serves, plan says what would change with
// ours in its place, and writes nothing: no file, and no rule.
func TestKernelPlanFromKubeProxy(t *testing.T) {
	t.Parallel()
	traced.Need(t)
	c := newContest(t, theirNft, theirNftables)
	api := c.proxies[0].kubeconfig
	c.each(func(p *proxy) { p.start(t, detected) })
	c.write([]thing{a(20, "web", spread(), samePort(30400))})
	c.settle()
	for _, p := range c.proxies {
		plan, exit := p.plan(t)
		if exit != 2 || plan.PID != p.process.Pid || plan.From != p.mode || plan.To != p.mode || !strings.Contains(strings.Join(plan.Notes, "\n"), "Services were not looked at") {
			t.Errorf("%s: without a kubeconfig plan says %+v, and exits %d", p, plan, exit)
		}
		plan, exit = p.plan(t, "--kubeconfig="+api)
		if exit != 2 || plan.Services == 0 || len(plan.Differs)+len(plan.Notes) > 0 || !strings.Contains(strings.Join(plan.Settings, "\n"), "ipvs.syncPeriod") {
			t.Errorf("%s: plan says %+v, and exits %d", p, plan, exit)
		}
		if left := strings.Join(plan.Left, "\n"); strings.Contains(left, "remove table ip kube-proxy") != (p.mode == "nftables") || strings.Contains(left, "KUBE-SERVICES") {
			t.Errorf("%s: left over is %q", p, left)
		}
		file := filepath.Join(p.dir, "plain.yaml")
		text := "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: " + p.mode + "\nhostnameOverride: " + here + "\n" + pods
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		plan, exit = p.plan(t, "--kubeconfig="+api, "--config="+file)
		if exit != 0 || plan.Config != file || plan.Outcome != admin.Go || len(plan.Steps) == 0 {
			t.Errorf("%s: by a file of no odd settings plan says %+v, and exits %d", p, plan, exit)
		}
	}
	theirs := c.proxies[0]
	if _, exit := theirs.plan(t, "--mode=no-such"); exit != 1 {
		t.Errorf("for a mode without a plugin it exits %d", exit)
	}
	c.write([]thing{a(20, "web", spread(), samePort(30400)), a(21, "taken", spread(), externalIPs("10.244.9.9")), a(22, "own", spread(), externalIPs("192.0.2.10"))})
	theirs.setFirewall(t, true)
	plan, exit := theirs.plan(t, "--mode=nftables", "--kubeconfig="+api)
	text := strings.Join(plan.Differs, "\n") + strings.Join(plan.Notes, "\n")
	for _, want := range []string{"/taken", "/own", "external IP 192.0.2.10 is this node's own", "127.0.0.1", "FORWARD"} {
		if exit != 2 || !strings.Contains(text, want) {
			t.Errorf("plan --mode=nftables says nothing of %s: %+v, exit %d", want, plan, exit)
		}
	}
	if left := strings.Join(plan.Left, "\n"); !strings.Contains(left, "KUBE-SERVICES") || strings.Contains(left, "KUBE-MARK-MASQ") {
		t.Errorf("in mode nftables left over is %q", left)
	}
	theirs.plansBesideOthers(t)
}

// plansBesideOthers wants the plan to name what other software of the node has to do with it:
// CNI's portmap, the other backend of iptables, and programs that are too old.
func (p *proxy) plansBesideOthers(t *testing.T) {
	t.Helper()
	const ours = "CNI-DN-0123456789abcdef01234"
	for _, words := range []string{"-N CNI-HOSTPORT-DNAT", "-N " + ours, "-A CNI-HOSTPORT-DNAT -p tcp --dport 8080 -j " + ours,
		"-A " + ours + " -p tcp --dport 8080 -s 10.244.0.0/24 -j KUBE-MARK-MASQ"} {
		p.run(t, "iptables", append([]string{"-t", "nat"}, strings.Fields(words)...)...)
	}
	plan, _ := p.plan(t)
	if !slices.Contains(plan.Kept, "ipv4 nft: keep nat KUBE-MARK-MASQ and KUBE-POSTROUTING: a rule of "+ours+" leads to KUBE-MARK-MASQ") {
		t.Errorf("beside portmap's chains it keeps %q", plan.Kept)
	}
	if notes := strings.Join(plan.Notes, "\n"); strings.Contains(notes, "both backends") {
		t.Errorf("with rules in one backend of iptables plan notes %s", notes)
	}
	p.run(t, "iptables-legacy", "-t", "nat", "-N", "KUBE-SERVICES")
	plan, exit := p.plan(t)
	if notes := strings.Join(plan.Notes, "\n"); exit != 2 || !strings.Contains(notes, "rules of Kubernetes stood in both backends of iptables") {
		t.Errorf("with rules in both backends of iptables plan exits %d and notes %s", exit, notes)
	}
	for _, name := range []string{"iptables", "iptables-nft", "iptables-legacy", "ip6tables", "ip6tables-nft", "ip6tables-legacy"} {
		program := filepath.Join(p.dir, name)
		_ = os.Remove(program) // a link that gives it the node's backend
		if err := os.WriteFile(program, []byte("#!/bin/sh\necho iptables v1.6.2\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	plan, exit = p.plan(t)
	if why := strings.Join(plan.Refused, "\n"); exit != 1 || plan.Outcome != admin.No || !strings.Contains(why, "is version 1.6.2, and 1.8.0 or later is needed") {
		t.Errorf("with programs that are too old plan exits %d: %s", exit, why)
	}
}

// plan asks what would change on the node, and sees that this writes nothing.
func (p *proxy) plan(t *testing.T, flags ...string) (plan admin.MovePlan, exit int) {
	t.Helper()
	words := append([]string{"plan", "--from-kube-proxy", "-o=json", "--plugin-dir=" + binaries}, flags...)
	// kube-proxy is halted, so that it writes nothing meanwhile; a program that it runs may still end.
	if err := p.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.process.Signal(syscall.SIGCONT) }()
	var cmd *exec.Cmd
	var stdout, stderr bytes.Buffer
	var written []string
	for range 3 {
		stdout.Reset()
		cmd = exec.CommandContext(t.Context(), filepath.Join(binaries, "pointsman"), words...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		cmd.Env = slices.DeleteFunc(p.environ(), func(entry string) bool { return strings.HasPrefix(entry, "POINTSMAN_") }) // of tests
		err := p.hosts["node"].Do(func() (err error) {
			written, err = traced.Written(t.TempDir(), cmd)
			return err
		})
		if err != nil {
			t.Fatalf("%v: %s", err, &stderr)
		}
		if len(written) == 0 {
			break
		}
	}
	if len(written) > 0 {
		t.Errorf("plan %q writes:\n%s", flags, strings.Join(written, "\n"))
	}
	if err := json.Unmarshal(stdout.Bytes(), &plan); err != nil {
		t.Fatalf("%s: plan %q: %v: %s%s", p, flags, err, &stdout, &stderr)
	}
	t.Logf("%s: plan %q:\n%s", p, flags, &stdout)
	return plan, cmd.ProcessState.ExitCode()
}
