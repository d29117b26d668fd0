// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pointsman/pointsman/host/admin"
)

// A node is a machine of the cluster with a host on it.
type node struct {
	*place
	name string
	dir  string
	pods [2]*place
	way  *way
	*admin.Client

	ended chan struct{} // closed when the host's process is gone; nil: none was started
	pid   int
}

// newNode makes node i, with its pods, its way to the API server and its Node object.
func (w *world) newNode(i int) *node {
	w.Helper()
	n := &node{name: "node-" + string(rune('a'+i)), dir: w.shortDir()}
	n.place = w.place(n.name, addr("192.0.2.%d", i+1), addr("2001:db8::%d", i+1))
	for j := range n.pods {
		n.pods[j] = w.pod(i, j, n.place)
	}
	n.way = w.newWay(n)
	n.Client = admin.NewClient(n.path("admin.sock"))
	w.register(n, i)
	return n
}

// shortDir is a folder whose name leaves room for a socket's.
func (w *world) shortDir() string {
	w.Helper()
	dir, err := os.MkdirTemp("", "e2e-")
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// register does what a kubelet and the controllers do.
func (w *world) register(n *node, i int) {
	w.Helper()
	object := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: map[string]string{corev1.LabelTopologyZone: "zone-" + string(rune('a'+i)), corev1.LabelHostname: n.name}},
		Spec:       corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.244.%d.0/24", i+1), fmt.Sprintf("fd00:10:244:%d::/64", i+1)}},
	}
	object.Spec.PodCIDR = object.Spec.PodCIDRs[0]
	object, err := w.kube.CoreV1().Nodes().Create(w.Context(), object, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for _, a := range n.addrs {
		object.Status.Addresses = append(object.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	if _, err := w.kube.CoreV1().Nodes().UpdateStatus(w.Context(), object, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// configure writes the node's settings.
func (w *world) configure(n *node, m mode) {
	w.Helper()
	text := fmt.Sprintf(`apiVersion: pointsman.dev/v1alpha1
kind: HostConfig
mode: %s
source: {kubernetes: {kubeconfig: %q}}
hostnameOverride: %s
detectLocalMode: NodeCIDR
minSyncPeriod: 20ms
syncPeriod: 2s
adminSocket: admin.sock
stateDir: state
oomScoreAdj: 0
pluginDirs: [%q]
plugins: {%s: {options: {%s}}}
`, m.name, n.way.kubeconfig, n.name, binaries, m.name, m.options)
	if err := os.WriteFile(n.path("host.yaml"), []byte(text), 0o644); err != nil {
		w.Fatal(err)
	}
}

// start starts the node's host, and waits until all that there is is served.
func (w *world) start(n *node) {
	w.Helper()
	w.launch(n)
	w.served(n)
}

// launch starts the node's host.
func (w *world) launch(n *node) {
	w.Helper()
	log, err := os.OpenFile(n.path("host.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		w.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(binaries, "pointsman"), "run", "--config", n.path("host.yaml"))
	cmd.Stdout, cmd.Stderr = log, log
	// The thread that starts it lives as long as it does, or the kernel would take
	// the thread's end for the test's.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error, 1), make(chan struct{})
	go func() { // ends with the process
		defer close(ended)
		_ = n.host.Do(func() error {
			err := cmd.Start()
			started <- err
			if err == nil {
				_ = cmd.Wait() // it is ended by a signal
			}
			return err
		})
	}()
	if err := <-started; err != nil {
		w.Fatal(err)
	}
	n.ended, n.pid = ended, cmd.Process.Pid
}

// served waits until n's host is well and owes nothing.
func (w *world) served(n *node) {
	w.Helper()
	w.until(n.name+" serves", func() error {
		s, err := n.Status(w.Context())
		switch {
		case err != nil:
			return fmt.Errorf("%w; its last words:\n%s", err, n.words())
		case !s.Healthy && !onlyRestarted(s.Warnings):
			return fmt.Errorf("warnings: %+v", s.Warnings)
		case s.Sync.Pending > 0 || s.Sync.Last.IsZero():
			return fmt.Errorf("%d of %d confirmed, %d pending", s.Sync.Acked, s.Sync.Sent, s.Sync.Pending)
		}
		return nil
	})
}

// onlyRestarted reports whether there is nothing to warn of but a plugin that a test
// has killed.
func onlyRestarted(list []admin.Warning) bool {
	for _, w := range list {
		if w.Code != "W002" {
			return false
		}
	}
	return true
}

func (n *node) words() string {
	data, err := os.ReadFile(n.path("host.log"))
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-4096):])
}

// signal sends sig to the node's host, and waits until that is gone.
func (w *world) signal(n *node, sig syscall.Signal) {
	w.Helper()
	if n.ended == nil {
		return
	}
	_ = syscall.Kill(n.pid, sig)
	select {
	case <-n.ended:
		n.ended = nil
	case <-time.After(patience):
		w.Fatalf("%s's host does not end; its last words:\n%s", n.name, n.words())
	}
}

// run runs a program on the node, and returns what it says.
func (w *world) run(n *node, name string, args ...string) string {
	w.Helper()
	ctx, cancel := afterwards()
	defer cancel()
	var out []byte
	err := n.host.Do(func() (err error) {
		out, err = exec.CommandContext(ctx, name, args...).CombinedOutput()
		return err
	})
	if err != nil {
		w.Fatalf("%s on %s: %v: %s", name, n.name, err, out)
	}
	return string(out)
}

// get asks one of the host's servers, from p: "CODE BODY".
func (w *world) get(p *place, url string) string {
	w.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, to string) (conn net.Conn, err error) {
		err = p.host.Do(func() error {
			conn, err = new(net.Dialer).DialContext(ctx, network, to)
			return err
		})
		return conn, err
	}}
	client := &http.Client{Timeout: 5 * time.Second, Transport: transport}
	answer, err := client.Get(url)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s", answer.StatusCode, body)
}

// stop ends the node's host and plugin, and leaves nothing of them in the kernel.
func (w *world) stop(n *node) {
	w.Helper()
	w.signal(n, syscall.SIGINT)
	w.run(n, filepath.Join(binaries, "pointsman"), "cleanup", "--config", n.path("host.yaml"))
	if err := os.RemoveAll(n.path("state")); err != nil {
		w.Error(err)
	}
}

// A way leads one node to the API server, and can be cut.
type way struct {
	kubeconfig string
	open       func() error
	cut        func()
}

// newWay listens on the node's loopback, and passes on to the API server's.
func (w *world) newWay(n *node) *way {
	w.Helper()
	at := "127.0.0.1:6443"
	g := &gate{target: w.api.Addr()}
	open := func() error {
		return n.host.Do(func() error {
			l, err := net.Listen("tcp4", at)
			if err == nil {
				g.open(l)
			}
			return err
		})
	}
	if err := open(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(g.cut)
	return &way{kubeconfig: w.api.Kubeconfig(w.token(), "https://"+at), open: open, cut: g.cut}
}

// warnings are the codes of what the node's host warns of.
func (w *world) warnings(n *node) (codes []string) {
	s, err := n.Status(w.Context())
	if err != nil {
		return []string{err.Error()}
	}
	for _, warning := range s.Warnings {
		codes = append(codes, warning.Code)
	}
	return codes
}

// metric is what the node's host says of one metric, without labels.
func (w *world) metric(n *node, name string) (value float64, err error) {
	w.Helper()
	body := w.get(n.place, "http://127.0.0.1:10249/metrics")
	for _, line := range lines(body) {
		var label string
		if _, err := fmt.Sscanf(line, "%s %g", &label, &value); err == nil && label == name {
			return value, nil
		}
	}
	return 0, errors.New("no " + name)
}

func decode(text string, into any) error { return json.Unmarshal([]byte(text), into) }
