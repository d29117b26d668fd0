// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pointsman/pointsman/test/cluster"
	"github.com/pointsman/pointsman/test/eventually"
)

// TestKubeadm moves a node of a cluster that kubeadm has set up from kube-proxy to Pointsman and back, by the commands
// of docs/install.md. All but the kubelet is real. No call fails, and the host does not warn that its plugin outlives
// the container.
func TestKubeadm(t *testing.T) {
	cluster.Need(t)
	// The second time the ConfigMap says ipvs. TestKernelIPVSAfterKubeProxy runs kube-proxy in that mode.
	t.Run("iptables", func(t *testing.T) { newMove(t, "iptables").play(route{}, route{other: "From kube-proxy in ipvs mode"}) })
	t.Run("nftables", func(t *testing.T) {
		newMove(t, "nftables").play(route{there: "From kube-proxy in nftables mode", back: "And back to kube-proxy in nftables mode"})
	})
}

// A route names sections of docs/install.md with commands for one of kube-proxy's modes: additional ones for the way
// there and back, and those for serving in another mode than the ConfigMap's.
type route struct{ there, back, other string }

// A move moves the first of two nodes; the second one stays with kube-proxy.
type move struct {
	*contest
	kubelets []*kubelet // of the nodes, in order
	shell    []string   // the environment of the commands
}

func newMove(t *testing.T, mode string) *move {
	t.Helper()
	v := &move{contest: newContest(t)}
	v.asAdministrator()
	v.api.StartControllers("daemonset-controller", "job-controller", "garbage-collector-controller")
	v.kubeadm(mode)
	for _, node := range []string{here, there} {
		v.kubelets = append(v.kubelets, v.kubelet(node))
	}
	v.proxies = []*proxy{v.kubelets[0].p}
	v.must("kubectl -n kube-system rollout status daemonset/kube-proxy --timeout=2m")
	return v
}

// asAdministrator sets the environment in which a shell finds kubectl and the cluster.
func (v *move) asAdministrator() {
	v.Helper()
	peers, err := filepath.Abs("../../bin/peers")
	if err != nil {
		v.Fatal(err)
	}
	v.shell = append(os.Environ(), "PATH="+peers+":"+os.Getenv("PATH"), "KUBECONFIG="+v.api.Kubeconfig(cluster.Token(cluster.Admin), ""), "NODE="+here)
}

// kubeadm creates what kubeadm does, for nodes that reach the API server at their loopback, and whose kernel hides
// conntrack's limits from containers.
func (v *move) kubeadm(mode string) {
	v.Helper()
	text, err := os.ReadFile("testdata/kubeadm.yaml")
	if err != nil {
		v.Fatal(err)
	}
	file := filepath.Join(v.TempDir(), "kubeadm.yaml")
	edited := strings.NewReplacer("192.0.2.1:6443", "127.0.0.1:6443", "mode: iptables", "mode: "+mode, "maxPerCore: null", "maxPerCore: 0",
		"tcpCloseWaitTimeout: null", "tcpCloseWaitTimeout: 0s", "tcpEstablishedTimeout: null", "tcpEstablishedTimeout: 0s").Replace(string(text))
	if err := os.WriteFile(file, []byte(edited), 0o644); err != nil {
		v.Fatal(err)
	}
	v.kubectl("create", "-f", file)
}

// steps returns the commands in a section of docs/install.md: with the prompt $ those of the cluster's administrator,
// with # those on a node. Without a section there are none.
func (v *move) steps(prompt, section string) []string {
	v.Helper()
	if section == "" {
		return nil
	}
	text, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		v.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n### "+section+"\n")
	rest, _, _ = strings.Cut(rest, "\n##")
	var list []string
	for _, m := range regexp.MustCompile(`(?m)^\`+prompt+` (.*)$`).FindAllStringSubmatch(rest, -1) {
		if !strings.HasPrefix(m[1], "NODE=") { // the environment has this already
			list = append(list, m[1])
		}
	}
	if len(list) == 0 {
		v.Fatalf("docs/install.md has no commands in %q", section)
	}
	return list
}

// sh runs a command in the project's folder, as an administrator does, and waits as long as the test may run.
func (v *move) sh(command string) (string, error) {
	command = strings.Replace(command, "--timeout=2m", "--timeout="+timeout.String(), 1)
	cmd := exec.CommandContext(v.Context(), "sh", "-c", command)
	cmd.Dir, cmd.Env = "../..", v.shell
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (v *move) must(commands ...string) {
	v.Helper()
	for _, c := range commands {
		out, err := v.sh(c)
		v.Logf("$ %s\n%s", c, out)
		if err != nil {
			v.Fatalf("%s: %v: %s", c, err, out)
		}
	}
}

// onNode runs commands on the node that moves.
func (v *move) onNode(commands []string) {
	v.Helper()
	for _, c := range commands {
		v.proxies[0].run(v, "sh", "-c", c)
	}
}

// play moves the node there and back, by one route after the other.
func (v *move) play(routes ...route) {
	web, done := v.serve("web", on("far0", 8080))
	answers := func(place string) { v.lead(&web, on(place, 8080)) }
	there := v.steps("$", "kubeadm")
	if len(there) != 5 {
		v.Fatalf("docs/install.md moves by %q", there)
	}
	v.must(there[:2]...)
	v.validate(v.setting("kube-proxy", "config.conf"))
	v.expectPods("kube-proxy", "kube-proxy")
	v.expectRefused(func() {
		v.must(there[2], "kubectl -n kube-system wait --for=condition=Failed --timeout=2m job/check-$NODE")
		if out, err := v.sh(strings.Replace(there[3], "--timeout=2m", "--timeout=0", 1)); err == nil {
			v.Errorf("after a check that failed, %s: %s", there[3], out)
		}
		if text := v.output("check-" + here); !strings.Contains(text, "no plugin kernelspace") {
			v.Errorf("the log of the failed check is %s", text)
		}
	})
	for _, r := range routes {
		v.moveAndBack(r, there, answers)
	}
	done()
	if left := v.proxies[0].run(v, "nft", "list", "tables"); strings.Contains(left, "pointsman") {
		v.Errorf("after the moves, nf_tables has the tables\n%s", left)
	}
	if text := v.output("pointsman"); strings.Contains(text, "continues to serve") || strings.Count(text, `why="the host ends`) < len(routes) {
		v.Errorf("the host's log says that its plugin outlives the container:\n%s", text)
	}
}

// output returns what the pods of a DaemonSet or Job printed on the node.
func (v *move) output(owner string) string {
	v.Helper()
	text, err := os.ReadFile(filepath.Join(v.kubelets[0].root, owner+".log"))
	if err != nil {
		v.Fatal(err)
	}
	return string(text)
}

// moveAndBack moves the node by a route and back, and checks after each move that a new endpoint of the Service answers.
func (v *move) moveAndBack(r route, there []string, answers func(place string)) {
	v.Helper()
	if r.other == "" {
		v.must(there[2:]...)
	} else {
		v.moveToOtherMode(there, v.steps("$", r.other))
	}
	v.expectPods("pointsman", "kube-proxy")
	v.onNode(v.steps("#", r.there))
	answers("far1")

	v.must(v.steps("$", "And back")...)
	v.expectPods("kube-proxy", "kube-proxy")
	v.onNode(v.steps("#", r.back))
	v.must(v.steps("$", r.back)...)
	answers("far0")
}

// moveToOtherMode moves the node, while the ConfigMap says ipvs, to another mode: other has the settings, the check of
// that mode, and the commands that remove what kube-proxy left.
func (v *move) moveToOtherMode(there, other []string) {
	v.Helper()
	if len(other) != 4 {
		v.Fatalf("docs/install.md leaves ipvs by %q", other)
	}
	before := v.setMode("ipvs")
	v.must(other[0], other[1])
	v.must(there[3:]...)
	v.must(other[2:]...)
	if text := v.output("pointsman"); !strings.Contains(text[strings.LastIndex(text, "host starting"):], " mode=iptables ") {
		v.Errorf("the host did not start in mode iptables; its log is\n%s", text)
	}
	v.setMode(before) // this kernel may lack IPVS for the kube-proxy that comes back
}

// expectRefused lets the check fail, by a mode without a plugin: the node gets no label, and kube-proxy's processes
// stay.
func (v *move) expectRefused(check func()) {
	v.Helper()
	before, mode := v.pods(), v.setMode("kernelspace")
	check()
	if after := v.pods(); !maps.Equal(before, after) {
		v.Errorf("after a failed check, the pods are %v; want %v", after, before)
	}
	v.setMode(mode)
}

// setMode writes another mode into kube-proxy's settings, and returns the old one. Running processes keep the settings
// that they have read.
func (v *move) setMode(mode string) (before string) {
	v.Helper()
	m, err := v.CoreV1().ConfigMaps("kube-system").Get(v.Context(), "kube-proxy", metav1.GetOptions{})
	if err != nil {
		v.Fatal(err)
	}
	line := regexp.MustCompile("(?m)^mode: (.*)$")
	before = line.FindStringSubmatch(m.Data["config.conf"])[1]
	m.Data["config.conf"] = line.ReplaceAllString(m.Data["config.conf"], "mode: "+mode)
	if _, err := v.CoreV1().ConfigMaps("kube-system").Update(v.Context(), m, metav1.UpdateOptions{}); err != nil {
		v.Fatal(err)
	}
	return before
}

// pods returns the pods of the DaemonSets with their UIDs, by node.
func (v *move) pods() map[string]string {
	v.Helper()
	all, err := v.CoreV1().Pods("kube-system").List(v.Context(), metav1.ListOptions{})
	if err != nil {
		v.Fatal(err)
	}
	found := make(map[string]string)
	for _, p := range all.Items {
		if owner := p.OwnerReferences[0]; owner.Kind == "DaemonSet" {
			found[p.Spec.NodeName+" "+owner.Name] = fmt.Sprint(p.UID, p.Status.Phase)
		}
	}
	return found
}

// expectPods waits until exactly these DaemonSets have one pod on each node with a kubelet.
func (v *move) expectPods(names ...string) {
	v.Helper()
	eventually.Succeeds(v, fmt.Sprintf("%q serve the nodes", names), func() error {
		pods := v.pods()
		for i, name := range names[:len(v.kubelets)] {
			if pods[v.kubelets[i].node+" "+name] == "" || len(pods) != len(v.kubelets) {
				return fmt.Errorf("there are %v", pods)
			}
		}
		return nil
	})
}
