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
	"github.com/pointsman/pointsman/test/cluster"
	"github.com/pointsman/pointsman/test/traced"
)

// TestKernelPlanFromKubeProxy: while a kube-proxy serves, plan tells what would change with our proxy in its place, and
// writes nothing: no file, and no rule.
func TestKernelPlanFromKubeProxy(t *testing.T) {
	t.Parallel()
	traced.Need(t)
	c := newContest(t, theirNft, theirNftables)
	c.each(func(p *proxy) { p.start(t) })
	c.write([]thing{newThing(20, "web", spread(), samePort(30400))})
	c.settle()
	for _, p := range c.proxies {
		plan, exit := p.plan(t)
		if exit != 2 || plan.PID != p.process.Pid || plan.From != p.mode || plan.To != p.mode || len(plan.Notes) > 0 || !strings.Contains(strings.Join(plan.Settings, "\n"), "ipvs.syncPeriod") {
			t.Errorf("%s: plan says %+v, and exits %d", p, plan, exit)
		}
		taken, left := strings.Join(plan.Taken, "\n"), strings.Join(plan.Left, "\n")
		if strings.Contains(taken, "KUBE-SERVICES") != (p.mode == "iptables") || strings.Contains(left, "remove table ip kube-proxy") != (p.mode == "nftables") || strings.Contains(left, "KUBE-SERVICES") {
			t.Errorf("%s: taken over is %q, left over %q", p, taken, left)
		}
		file := filepath.Join(p.dir, "plain.yaml")
		text := "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: " + p.mode + "\nhostnameOverride: " + here + "\nclusterCIDR: 10.244.0.0/16,fd00:10:244::/48\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		plan, exit = p.plan(t, "--config="+file)
		if exit != 0 || plan.Config != file || plan.Back == "" {
			t.Errorf("%s: by a file of no odd settings plan says %+v, and exits %d", p, plan, exit)
		}
	}
	theirs := c.proxies[0]
	plan, _ := theirs.plan(t, "--mode=nftables")
	if left := strings.Join(plan.Left, "\n"); !strings.Contains(left, "KUBE-SERVICES") || strings.Contains(left, "KUBE-MARK-MASQ") || !strings.Contains(plan.Back, "mode swap iptables") {
		t.Errorf("in mode nftables plan says %+v", plan)
	}
	const portmap = "CNI-DN-0123456789abcdef01234" // a chain of CNI's portmap that leads to a chain of kube-proxy's
	for _, words := range []string{"-N CNI-HOSTPORT-DNAT", "-N " + portmap, "-A CNI-HOSTPORT-DNAT -p tcp --dport 8080 -j " + portmap,
		"-A " + portmap + " -p tcp --dport 8080 -s 10.244.0.0/24 -j KUBE-MARK-MASQ"} {
		theirs.run(t, "iptables", append([]string{"-t", "nat"}, strings.Fields(words)...)...)
	}
	plan, _ = theirs.plan(t)
	if !slices.Contains(plan.Kept, "ipv4 nft: keep nat KUBE-MARK-MASQ and KUBE-POSTROUTING: a rule of "+portmap+" leads to KUBE-MARK-MASQ") {
		t.Errorf("beside portmap's chains it keeps %q", plan.Kept)
	}
}

// plan runs the verb, and checks that it writes nothing.
func (p *proxy) plan(t *testing.T, flags ...string) (plan admin.MovePlan, exit int) {
	t.Helper()
	words := append([]string{"plan", "--from-kube-proxy", "-o=json", "--plugin-dir=" + cluster.Binaries}, flags...)
	// kube-proxy is stopped, so that it writes nothing meanwhile; a program that it runs may still end.
	if err := p.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.process.Signal(syscall.SIGCONT) }()
	var cmd *exec.Cmd
	var stdout, stderr bytes.Buffer
	var written []string
	for range 3 {
		stdout.Reset()
		cmd = exec.CommandContext(t.Context(), filepath.Join(cluster.Binaries, "pointsman"), words...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		cmd.Env = slices.DeleteFunc(p.environ(), func(entry string) bool { return strings.HasPrefix(entry, "POINTSMAN_") }) // of the tests
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
