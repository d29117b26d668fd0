// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/test/cluster"
)

// TestKernelIPVSAfterKubeProxy starts Pointsman after the real kube-proxy served in its ipvs mode, over a real API
// server: first to clean up, then to take over what it serves.
func TestKernelIPVSAfterKubeProxy(t *testing.T) {
	n := newNode(t)
	proxy := peer(t, "kube-proxy")
	t.Setenv("POINTSMAN_APISERVER", peer(t, "kube-apiserver"))
	c := cluster.Start(t, cluster.Options{})
	s, stage := n.showScenario("dual-stack")
	c.Load(objects(t, s.Manifests)...)
	cluster.AddNode(t, c.Client(), "n1", 0, s.Node.Addrs...)

	t.Run("cleanup", func(t *testing.T) { n.on(t).expectCleanup(proxy, c, s, stage) })
	t.Run("takeover", func(t *testing.T) { n.on(t).expectTakeover(proxy, c, s, stage) })
	t.Run("another mode", func(t *testing.T) { n.on(t).leaves(proxy, c, s, stage) })
}

// on returns n for a test within the test.
func (n *node) on(t *testing.T) *node {
	below := *n
	below.TB = t
	return &below
}

// expectCleanup checks that nothing is left of a kube-proxy, not even what its own --cleanup forgets, and that
// everything of others is as it was.
func (n *node) expectCleanup(proxy string, c *cluster.Cluster, s sdktest.Scenario, stage sdktest.Stage) {
	before := n.state()
	stop := n.kubeProxy(proxy, c)
	n.expectPackets(s, stage)
	stop()
	n.shell(`ipvsadm -A -t 203.0.113.9:443 -s wlc; ipset create OTHER hash:ip; iptables-legacy -t nat -A POSTROUTING -s 203.0.113.9 -j ACCEPT`)
	dirty := n.state()
	named := strings.ReplaceAll(n.cleanup("--kube-proxy", "--dry-run"), "would remove ", "removed ")
	if now := n.state(); now != dirty {
		n.Errorf("a dry run changed\n%s\nto\n%s", dirty, now)
	}
	if gone := n.cleanup("--kube-proxy"); gone != named {
		n.Errorf("cleanup removed\n%s\nand the dry run named\n%s", gone, named)
	}
	n.shell(`ipvsadm -D -t 203.0.113.9:443; ipset destroy OTHER; iptables-legacy -t nat -D POSTROUTING -s 203.0.113.9 -j ACCEPT`)
	if after := n.state(); after != before {
		n.Errorf("left is\n%s\nand before kube-proxy there was\n%s", after, before)
	}
}

// expectTakeover checks that connections of kube-proxy stay, that all calls are answered, and that nothing leads to
// kube-proxy's rules in the end.
func (n *node) expectTakeover(proxy string, c *cluster.Cluster, s sdktest.Scenario, stage sdktest.Stage) {
	stop := n.kubeProxy(proxy, c)
	n.expectPackets(s, stage)
	kept := n.connect(s, stage)
	n.shell("echo 0 >/proc/sys/net/ipv4/vs/conntrack") // as a kube-proxy may have had it
	byPod := s
	byPod.Packets = s.Packets[:1] // which must not be masqueraded
	maps.Copy(kept, n.connect(byPod, stage))
	stop() // what it wrote stays
	load := n.load(s, stage)
	n.startInMode(c, "ipvs")
	n.expectKept(kept)
	if failed := load(); len(failed) > 0 {
		n.Errorf("while it took over %d calls failed, the first: %s", len(failed), failed[0])
	}
	n.expectPackets(s, stage)
	for _, line := range strings.Split(n.shell("iptables-legacy-save; ip6tables-legacy-save"), "\n") {
		if strings.HasPrefix(line, ":KUBE-MARK-MASQ ") || strings.HasPrefix(line, ":KUBE-POSTROUTING ") {
			continue // which all modes share, with these names
		}
		if strings.HasPrefix(line, ":KUBE-") && !strings.HasPrefix(line, ":KUBE-IPVS-") || strings.HasPrefix(line, ":KUBE-IPVS-FILTER") || strings.HasPrefix(line, ":KUBE-IPVS-OUT-FILTER") {
			n.Errorf("of kube-proxy's there still is %s", line)
		}
	}
	n.stop()
	n.expectKept(kept)
	load = n.load(s, stage)
	stop = n.kubeProxy(proxy, c) // the way back
	n.cleanup()
	n.expectPackets(s, stage)
	n.expectKept(kept)
	if failed := load(); len(failed) > 0 {
		n.Errorf("while kube-proxy came back %d calls failed, the first: %s", len(failed), failed[0])
	}
	if left := n.shell("ipset list -n; iptables-legacy-save; ip6tables-legacy-save"); strings.Contains(left, "PM-") || strings.Contains(left, ":KUBE-IPVS-POSTROUTING ") || !strings.Contains(left, "KUBE-CLUSTER-IP\n") {
		n.Errorf("beside kube-proxy, which serves again, there is\n%s", left)
	}
	stop()
	n.cleanup("--kube-proxy")
}

// startInMode starts a host that serves the cluster in a mode, on a node without one.
func (n *node) startInMode(c *cluster.Cluster, mode string) {
	n.Helper()
	if err := os.RemoveAll(filepath.Join(n.dir, "state")); err != nil {
		n.Fatal(err)
	}
	n.write("host.yaml", strings.Replace(n.config(mode), "{files: {path: services}}", "{kubernetes: {kubeconfig: "+c.Kubeconfig(cluster.Token(cluster.Admin), "")+"}}", 1))
	n.Cleanup(n.stop)
	n.start()
}

// leaves checks that mode iptables serves beside what kube-proxy left in its ipvs mode: that mode's connections stay,
// and all calls are answered, also while it is removed.
func (n *node) leaves(proxy string, c *cluster.Cluster, s sdktest.Scenario, stage sdktest.Stage) {
	stop := n.kubeProxy(proxy, c)
	n.expectPackets(s, stage)
	kept := n.connect(s, stage)
	stop() // what it wrote stays
	load := n.load(s, stage)
	n.startInMode(c, "iptables")
	n.expectKept(kept)
	n.expectPackets(s, stage)
	n.cleanup("--kube-proxy")
	n.expectPackets(s, stage)
	if failed := load(); len(failed) > 0 {
		n.Errorf("while another mode came in its place %d calls failed, the first: %s", len(failed), failed[0])
	}
	if left := n.shell("ipvsadm -Sn; ipset list -n; ip -o link show kube-ipvs0 2>/dev/null || true"); left != "" {
		n.Errorf("left is\n%s", left)
	}
	n.stop()
	n.shell(filepath.Join(n.bin, "pointsman-dataplane-iptables") + " cleanup")
}

// expectKept checks that connections are still served by the same endpoints.
func (n *node) expectKept(kept map[sdktest.Flow]sdktest.Answer) {
	n.Helper()
	for flow, who := range kept {
		if a, err := flow.Ask(n.Context()); err != nil || a.Endpoint != who.Endpoint {
			n.Errorf("a connection to %s is now answered by %s, %v", who.Endpoint, a, err)
		}
	}
}

// kubeProxy runs the real kube-proxy until stop is called; what it wrote stays.
func (n *node) kubeProxy(binary string, c *cluster.Cluster) (stop func()) {
	n.Helper()
	cmd := exec.Command(binary, "--kubeconfig="+c.Kubeconfig(cluster.Token(cluster.Admin), ""), "--proxy-mode=ipvs", "--hostname-override=n1",
		"--cluster-cidr=10.180.0.0/24,fd00:10:180::/64", "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s")
	cmd.Env = append(os.Environ(), "PATH="+legacyNames(n.TB)+":"+os.Getenv("PATH"))
	log, err := os.Create(filepath.Join(n.TempDir(), "kube-proxy.log"))
	if err != nil {
		n.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		n.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		if n.Failed() {
			_ = cmd.Process.Signal(syscall.SIGQUIT) // a loaded guest logs why it takes so long
		} else {
			_ = cmd.Process.Kill()
		}
		_ = cmd.Wait() // it was killed
		log.Close()
		if n.Failed() {
			text, _ := os.ReadFile(log.Name())
			n.Logf("kube-proxy: %s", text)
		}
	})
	n.Cleanup(stop)
	n.until("kube-proxy has written its rules", func() error {
		for program, last := range map[string]string{"iptables-legacy-save": "KUBE-CLUSTER-IP", "ip6tables-legacy-save": "KUBE-6-CLUSTER-IP"} {
			if rules := n.shell(program); !strings.Contains(rules, "--match-set "+last+" dst,dst -j ACCEPT") {
				return fmt.Errorf("%s prints\n%s", program, rules)
			}
		}
		return nil
	})
	return stop
}

// cleanup runs the plugin's verb, and returns its output.
func (n *node) cleanup(flags ...string) string {
	n.Helper()
	out, err := exec.Command(filepath.Join(n.bin, "pointsman-dataplane-ipvs"), append([]string{"cleanup"}, flags...)...).CombinedOutput()
	if err != nil {
		n.Fatalf("cleanup %q: %v: %s", flags, err, out)
	}
	return string(out)
}

// state returns what this node has of all that a kube-proxy or we may make.
func (n *node) state() string {
	n.Helper()
	return n.shell(`ipvsadm -Sn | sort; ipset save | sort; ip -o address show | sed 's/^[0-9]*: //; s/ valid_lft.*//; / fe80:/d' | sort
		for table in nat filter mangle; do iptables-legacy-save -t $table; ip6tables-legacy-save -t $table; done | sed '/^#/d; s/\[.*\]//'`)
}

func (n *node) shell(script string) string {
	n.Helper()
	out, err := exec.Command("sh", "-ec", script).CombinedOutput()
	if err != nil {
		n.Fatalf("%s: %v: %s", script, err, out)
	}
	return string(out)
}

// peer returns one of the programs that make peers builds.
func peer(t testing.TB, name string) string {
	t.Helper()
	binary, err := filepath.Abs("../../bin/peers/" + name)
	if err == nil {
		_, err = os.Stat(binary)
	}
	if err != nil {
		t.Skipf("needs the real %s: make peers builds it, in some minutes", name)
	}
	return binary
}

// legacyNames returns a folder where the programs of legacy iptables, which this kernel has, have their plain names.
func legacyNames(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, verb := range []string{"", "-save", "-restore"} {
			program, err := exec.LookPath(family + "-legacy" + verb)
			if err == nil {
				err = os.Symlink(program, filepath.Join(dir, family+verb))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// objects returns what manifests describe.
func objects(t testing.TB, manifests []byte) []metav1.Object {
	t.Helper()
	var all []metav1.Object
	for docs := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifests))); ; {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode(doc, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		switch o := o.(type) {
		case *corev1.Service:
			all = append(all, o)
		case *discoveryv1.EndpointSlice:
			all = append(all, o)
		}
	}
}
