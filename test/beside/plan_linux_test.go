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
