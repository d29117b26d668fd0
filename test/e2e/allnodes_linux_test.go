// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/pointsman/pointsman/test/built"
	"github.com/pointsman/pointsman/test/cluster"
	"github.com/pointsman/pointsman/test/eventually"
)

// TestAllNodes asks all nodes of a cluster through kubectl and its plugin. The API server and the hosts are real; the
// test plays the kubelets. One node is down: its kubelet never answers.
func TestAllNodes(t *testing.T) {
	cluster.Need(t)
	f := &fleet{world: &world{TB: t, api: cluster.Start(t, cluster.Options{Users: []string{"bob"}})}, bin: t.TempDir()}
	f.kube = f.api.Client()
	if err := built.Into(f.bin, "", "./host/kubectl-pointsman"); err != nil {
		t.Fatal(err)
	}
	f.grantRights() // the manifests make the pods
	f.node("worker-1", f.kubelet("worker-1", f.host("worker-1")), "")
	f.node("worker-2", f.kubelet("worker-2", f.host("worker-2")), "")
	f.node("worker-3", f.silent(), "Kubelet stopped posting node status.")

	f.admin = f.api.Kubeconfig(cluster.Token(cluster.Admin), "")
	t.Run("all", f.all)
	t.Run("rights", f.rights)
}

// A fleet is a cluster with a host on each node, and a kubectl with the plugin.
type fleet struct {
	*world
	bin   string
	admin string // a kubeconfig
}

// host runs a host from manifests, and returns a command that runs pointsman on its node.
func (f *fleet) host(name string) []string {
	f.Helper()
	dir, err := os.MkdirTemp("", "pm-") // a short path, for sockets
	if err != nil {
		f.Fatal(err)
	}
	services := filepath.Join(dir, "services")
	settings := fmt.Sprintf("apiVersion: pointsman.dev/v1alpha1\nkind: HostConfig\nmode: userspace\nhostnameOverride: %s\nsource: {files: {path: %s}}\nstateDir: %s\ndataDir: %[3]s\nadminSocket: %[3]s/admin.sock\n"+
		"pluginDirs: [%s]\nplugins: {userspace: {options: {redirect: never}}}\nhealthzBindAddress: \"\"\nmetricsBindAddress: \"\"\n", name, services, dir, cluster.Binaries)
	if err := errors.Join(os.Mkdir(services, 0o755), os.WriteFile(dir+"/host.yaml", []byte(settings), 0o644)); err != nil {
		f.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(cluster.Binaries+"/pointsman", "run", "--config", dir+"/host.yaml")
	cmd.Stderr, cmd.SysProcAttr = &log, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // the host was stopped
		if f.Failed() {
			f.Logf("the host of %s:\n%s", name, &log)
		}
		_ = os.RemoveAll(dir)
	})
	pointsman := []string{"env", "POINTSMAN_ADMINSOCKET=" + dir + "/admin.sock", cluster.Binaries + "/pointsman"}
	eventually.SucceedsWithin(f, timeout, name+" is well", func() error {
		out, err := exec.Command(pointsman[0], append(pointsman[1:], "status")...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
	return pointsman
}

// node adds a node whose kubelet listens at a port, with its pod of the DaemonSet.
func (f *fleet) node(name, port, notReady string) {
	f.Helper()
	n, err := f.kube.CoreV1().Nodes().Create(f.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		f.Fatal(err)
	}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "127.0.0.1"}, {Type: corev1.NodeInternalIP, Address: "192.0.2." + name[len(name)-1:]}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if notReady != "" {
		n.Status.Conditions[0].Status, n.Status.Conditions[0].Message = corev1.ConditionUnknown, notReady
	}
	if _, err := fmt.Sscan(port, &n.Status.DaemonEndpoints.KubeletEndpoint.Port); err != nil {
		f.Fatal(err)
	}
	if _, err = f.kube.CoreV1().Nodes().UpdateStatus(f.Context(), n, metav1.UpdateOptions{}); err != nil {
		f.Fatal(err)
	}
	template := f.daemon("pointsman").Spec.Template
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "pointsman-" + name, Labels: template.Labels}, Spec: template.Spec}
	p.Spec.NodeName = name
	if p, err = f.kube.CoreV1().Pods("kube-system").Create(f.Context(), p, metav1.CreateOptions{}); err != nil {
		f.Fatal(err)
	}
	p.Status.Phase = corev1.PodRunning
	if _, err = f.kube.CoreV1().Pods("kube-system").UpdateStatus(f.Context(), p, metav1.UpdateOptions{}); err != nil {
		f.Fatal(err)
	}
}

// kubelet serves the API server's exec requests for a node with that node's pointsman, and returns its port.
func (f *fleet) kubelet(name string, pointsman []string) string {
	f.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		command := r.URL.Query()["command"]
		if at := "/exec/kube-system/pointsman-" + name + "/pointsman"; r.URL.Path != at || len(command) == 0 || command[0] != "/usr/bin/pointsman" {
			http.Error(w, fmt.Sprintf("%s has nothing at %s to run %q", name, r.URL.Path, command), http.StatusNotFound)
			return
		}
		if err := execute(w, r, slices.Concat(pointsman, command[1:])); err != nil {
			f.Errorf("%s: exec %q: %v", name, command, err)
		}
	}))
	f.Cleanup(server.Close)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	return port
}

// execute runs a command with SPDY streams, as a kubelet does, by the protocol v4.channel.k8s.io.
func execute(w http.ResponseWriter, r *http.Request, command []string) error {
	if _, err := httpstream.Handshake(r, w, []string{remotecommand.StreamProtocolV4Name}); err != nil {
		return err
	}
	came := make(chan httpstream.Stream, 4)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		came <- s
		return nil
	})
	if conn == nil {
		return errors.New("there is no upgrade")
	}
	defer conn.Close()
	streams := make(map[string]io.Writer)
	for range 3 {
		select {
		case s := <-came:
			streams[s.Headers().Get(corev1.StreamType)] = s
		case <-conn.CloseChan():
			return errors.New("the connection ended before it had its streams")
		}
	}
	cmd := exec.CommandContext(r.Context(), command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = streams[corev1.StreamTypeStdout], streams[corev1.StreamTypeStderr]
	status := metav1.Status{Status: metav1.StatusSuccess}
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		status = metav1.Status{Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason, Message: err.Error(),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: remotecommand.ExitCodeCauseType, Message: fmt.Sprint(exit.ExitCode())}}}}
	} else if err != nil {
		return err
	}
	return json.NewEncoder(streams[corev1.StreamTypeError]).Encode(status)
}

// silent accepts connections and never answers. It returns its port.
func (f *fleet) silent() string {
	f.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { l.Close() }) // the kernel accepts
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// ask runs kubectl pointsman as a user would, and returns its exit code and output.
func (f *fleet) ask(t *testing.T, kubeconfig string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	kubectl, err := filepath.Abs("../../bin/peers/kubectl")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), kubectl, append([]string{"pointsman"}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+f.bin+":"+os.Getenv("PATH"), "KUBECONFIG="+kubeconfig)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// expect checks the exit code, and looks for lines with these words.
func (f *fleet) expect(t *testing.T, kubeconfig string, code int, lines [][]string, args ...string) {
	t.Helper()
	got, stdout, stderr := f.ask(t, kubeconfig, args...)
	for _, words := range lines {
		if !slices.ContainsFunc(strings.Split(stdout, "\n"), func(line string) bool {
			return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) })
		}) {
			t.Errorf("%q prints no line with %q", args, words)
		}
	}
	if got != code || t.Failed() {
		t.Fatalf("%q exits with %d, want %d:\n%s%s", args, got, code, stdout, stderr)
	}
}

// downNode is what the plugin prints about the node that is down.
var downNode = []string{"worker-3", "within 2s", "the node is not ready: Kubelet stopped posting node status."}

// all runs each command for all nodes. The tests of host/kubectl-pointsman check the output of each.
func (f *fleet) all(t *testing.T) {
	const noAnswer = 3
	f.expect(t, f.admin, noAnswer, [][]string{{"NODE", "STATE", "MODE"}, {"worker-1", "well", "userspace", "active"}, {"worker-2", "well"}, downNode}, "status")
	f.expect(t, f.admin, 0, [][]string{{"worker-1", "well"}}, "status", "--node", "worker-1", "--timeout=1m")
	f.expect(t, f.admin, 0, [][]string{{"NODE", "ANSWER"}, {"worker-2", "verdict", "pass"}}, "explain", "192.0.2.2", "127.96.9.9:80", "--timeout=1m")
	code, stdout, stderr := f.ask(t, f.admin, "status", "-o", "json")
	var list struct {
		Items []struct {
			Node, Error string
			Answer      struct{ Node struct{ Name string } }
		}
	}
	if err := json.Unmarshal([]byte(stdout), &list); err != nil || code != noAnswer || len(list.Items) != 3 || list.Items[1].Answer.Node.Name != "worker-2" || list.Items[2].Error == "" {
		t.Errorf("with -o json: %v, exit %d: %s%s", err, code, stdout, stderr)
	}
	if !strings.Contains(stderr, "2 of 3 nodes answered, 1 did not") {
		t.Errorf("on stderr is %q", stderr)
	}
}

// rights asks as a user with only the documented rights, and as a user without any.
func (f *fleet) rights(t *testing.T) {
	bob := f.api.Kubeconfig(cluster.Token("bob"), "")
	if code, stdout, stderr := f.ask(t, bob, "status"); code != 1 || !strings.Contains(stderr, `User "bob" cannot list resource "pods"`) {
		t.Errorf("a user without rights gets exit %d: %s%s", code, stdout, stderr)
	}
	f.kubectl("create", "clusterrole", "ask", "--verb=list", "--resource=pods,nodes")
	f.kubectl("create", "clusterrolebinding", "ask", "--clusterrole=ask", "--user=bob")
	f.kubectl("create", "role", "ask", "-n", "kube-system", "--verb=get,create", "--resource=pods/exec")
	f.kubectl("create", "rolebinding", "ask", "-n", "kube-system", "--role=ask", "--user=bob")
	eventually.SucceedsWithin(t, timeout, "a user with the documented rights gets an answer", func() error {
		code, stdout, stderr := f.ask(t, bob, "status", "--node=worker-1", "--timeout=1m")
		if code != 0 {
			return fmt.Errorf("exit %d: %s%s", code, stdout, stderr)
		}
		return nil
	})
}
