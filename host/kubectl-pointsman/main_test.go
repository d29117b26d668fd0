// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/exec"
	"sigs.k8s.io/yaml"
)

// A cluster is a cluster in memory with the answers of its pods.
type cluster struct {
	*fake.Clientset
	answers map[string]answer // by node; other nodes never answer

	mu  sync.Mutex // guards ran
	ran []string   // NODE COMMAND
}

// An answer is the output and exit status of pointsman on a node, or the error of exec.
type answer struct {
	stdout, stderr string
	code           int
	fails          string
}

func newCluster(answers map[string]answer, objects ...runtime.Object) *cluster {
	return &cluster{Clientset: fake.NewClientset(objects...), answers: answers}
}

func (c *cluster) run(ctx context.Context, pod *corev1.Pod, command []string) (stdout, stderr []byte, err error) {
	c.mu.Lock()
	c.ran = append(c.ran, pod.Spec.NodeName+" "+strings.Join(command, " "))
	c.mu.Unlock()
	a, ok := c.answers[pod.Spec.NodeName]
	switch {
	case !ok:
		<-ctx.Done()
		err = ctx.Err()
	case a.fails != "":
		err = errors.New(a.fails)
	case a.code != 0:
		err = exec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", a.code), Code: a.code}
	}
	return []byte(a.stdout), []byte(a.stderr), err
}

// says runs kubectl pointsman.
func (c *cluster) says(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = execute(args, &out, &errs, func(clientcmd.ClientConfig) (*fleet, error) { return &fleet{core: c.CoreV1(), run: c.run}, nil })
	return code, out.String(), errs.String()
}

func node(name, notReady string, addrs ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Message: "kubelet is posting ready status"}}
	if notReady != "" {
		n.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Message: notReady}
	}
	for _, a := range addrs {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

// hostPod returns a pod of Pointsman.
func hostPod(namespace, name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app.kubernetes.io/name": "pointsman"}},
		Spec:       corev1.PodSpec{NodeName: node, HostNetwork: true},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// pod returns a pod that calls Services.
func pod(name, node string, addrs ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	for _, a := range addrs {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
	}
	return p
}

const (
	well   = `{"healthy": true, "mode": "nftables", "host": {"version": "v1.2.3"}, "dataplane": {"role": "active", "version": "1.2.3"}, "sync": {"pending": 0}, "services": {"services": 12, "endpoints": 34}, "unserved": [], "warnings": []}`
	unwell = `{"healthy": false, "mode": "iptables", "host": {"version": "v1.2.2"}, "dataplane": {"state": "waiting", "version": "1.2.2"}, "sync": {"pending": 7}, "services": {"services": 12, "endpoints": 33},
		"unserved": [{"service": "a/b", "reason": "failed", "why": "x"}], "warnings": [{"code": "W001", "text": "dataplane iptables\nis waiting"}, {"code": "W004", "text": "1 failed"}]}`
	lost = "Kubelet stopped posting node status."
)

// mixed returns a cluster with every kind of failure. Something else serves node g.
func mixed() *cluster {
	waiting := hostPod("kube-system", "p-e", "e")
	waiting.Status = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "pointsman", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "not found"}}}}}
	leaving := hostPod("kube-system", "p-a0", "a")
	leaving.DeletionTimestamp, leaving.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"x"}
	return newCluster(map[string]answer{
		"a": {stdout: well},
		"b": {stdout: unwell, code: 2},
		"d": {fails: `container not found ("pointsman")`},
		"h": {stderr: "pointsman: no host answers: there is no socket\nsecond line\n", code: 3},
	}, node("a", ""), node("b", ""), node("c", lost), node("d", ""), node("e", ""), node("f", lost), node("g", ""), node("h", ""),
		leaving, hostPod("kube-system", "p-a", "a"), hostPod("kube-system", "p-b", "b"), hostPod("kube-system", "p-c", "c"), hostPod("kube-system", "p-d", "d"), waiting, hostPod("kube-system", "p-h", "h"),
		pod("web", "a", "10.244.1.7"))
}

// expect checks the exit status, and stdout except for the width of columns.
func (c *cluster) expect(t *testing.T, code int, stdout string, args ...string) {
	t.Helper()
	gotCode, got, stderr := c.says(args...)
	narrow := func(text string) (all []string) {
		for line := range strings.Lines(strings.TrimSpace(text)) {
			all = append(all, strings.Join(strings.Fields(line), " "))
		}
		return all
	}
	if gotCode != code || !slices.Equal(narrow(got), narrow(stdout)) {
		t.Errorf("%q exits with %d:\n%s%s\nwant %d:\n%s", args, gotCode, got, stderr, code, stdout)
	}
}

const statusHead = "NODE STATE MODE DATAPLANE HOST SERVICES ENDPOINTS PENDING UNSERVED WHY\n"

// TestStatus: each node has a row, and a node that does not answer within the timeout has the reason.
func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, begun := mixed(), time.Now()
		const sick = `
			b warning iptables waiting 1.2.2 v1.2.2 12 33 7 1 W001 dataplane iptables is waiting; W004 1 failed
			c no answer: within 2s; the node is not ready: Kubelet stopped posting node status.
			d no answer: container not found ("pointsman")
			e no answer: pod p-e waits: ImagePullBackOff not found
			f no answer: no pod of Pointsman is on this node; the node is not ready: Kubelet stopped posting node status.
			h no answer: no host answers: there is no socket`
		c.expect(t, exitNoAnswer, statusHead+"a well nftables active 1.2.3 v1.2.3 12 34 0 0 -"+sick, "status")
		if took := time.Since(begun); took != 2*time.Second {
			t.Errorf("it took %s", took)
		}
		c.expect(t, exitNoAnswer, statusHead+sick[1:], "status", "--problems")
	})
}

// TestExits: the exit status is that of the worst answer.
func TestExits(t *testing.T) {
	ok, degraded, differs, silent := answer{stdout: well}, answer{stdout: unwell, code: 2}, answer{stdout: "moved\n", code: 1}, answer{fails: "x"}
	for _, tc := range []struct {
		verb string
		a, b answer
		exit int
	}{
		{"status", ok, ok, 0}, {"status", ok, degraded, 2}, {"status", silent, degraded, 3}, {"status", degraded, silent, 3},
		{"diff", ok, ok, 0}, {"diff", differs, ok, 1}, {"diff", ok, differs, 1}, {"diff", silent, differs, 1}, {"diff", differs, silent, 1}, {"diff", ok, silent, 3},
		{"events", ok, silent, 3}, {"events", ok, ok, 0},
	} {
		c := newCluster(map[string]answer{"a": tc.a, "b": tc.b}, hostPod("kube-system", "p-a", "a"), hostPod("kube-system", "p-b", "b"))
		if code, stdout, stderr := c.says(tc.verb); code != tc.exit {
			t.Errorf("%s of %+v and %+v exits with %d, want %d: %s%s", tc.verb, tc.a, tc.b, code, tc.exit, stdout, stderr)
		}
	}
}

// TestJSON: JSON and YAML contain the output of each node unchanged.
func TestJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for format, decode := range map[string]func([]byte, any) error{"json": json.Unmarshal, "yaml": func(text []byte, v any) error { return yaml.Unmarshal(text, v) }} {
			code, stdout, _ := mixed().says("status", "-o", format)
			var list struct {
				APIVersion, Kind string
				Items            []struct {
					Node, Pod, Error string
					Answer           map[string]any
				}
			}
			if err := decode([]byte(stdout), &list); err != nil || code != exitNoAnswer {
				t.Fatalf("exit %d: %v: %s", code, err, stdout)
			}
			if len(list.Items) != 7 || list.APIVersion != "pointsman.dev/v1" || list.Kind != "NodeAnswerList" {
				t.Fatalf("%s has %+v", format, list)
			}
			a, c := list.Items[0], list.Items[2]
			if a.Node != "a" || a.Pod != "kube-system/p-a" || a.Error != "" || a.Answer["healthy"] != true {
				t.Errorf("%s: the answer of node a is %+v", format, a)
			}
			if c.Node != "c" || !strings.HasPrefix(c.Error, "no answer within 2s; the node is not ready") || c.Answer != nil {
				t.Errorf("%s: the answer of node c is %+v", format, c)
			}
		}
	})
}

// TestEvents: the events of all nodes are sorted by time.
func TestEvents(t *testing.T) {
	c := newCluster(map[string]answer{
		"a": {stdout: `{"items": [{"time": "2026-01-01T10:00:00Z", "reason": "Starting", "message": "it begins", "count": 1}, {"time": "2026-01-01T14:00:00+02:00", "warning": true, "reason": "SwapUndone", "object": "nftables", "message": "no", "count": 3}]}`},
		"b": {stdout: `{"items": [{"time": "2026-01-01T11:00:00Z", "warning": false, "reason": "PluginServing", "object": "x", "message": "up", "count": 1}]}`},
		"c": {fails: "gone"},
	}, hostPod("kube-system", "p-a", "a"), hostPod("kube-system", "p-b", "b"), hostPod("kube-system", "p-c", "c"))
	const head, undone = "NODE TIME GRADE REASON OBJECT MESSAGE\n", "a 2026-01-01T12:00:00Z warning SwapUndone nftables no (3 times)\nc no answer: gone\n"
	c.expect(t, exitNoAnswer, head+"a 2026-01-01T10:00:00Z normal Starting - it begins\nb 2026-01-01T11:00:00Z normal PluginServing x up\n"+undone, "events")
	c.expect(t, exitNoAnswer, head+undone, "events", "--problems", "--since", "1h")
	if want := "a /usr/bin/pointsman events --since=1h0m0s -o=json"; !slices.Contains(c.ran, want) {
		t.Errorf("it ran %q, want %s", c.ran, want)
	}
	code, stdout, _ := c.says("events", "--problems", "-o", "json", "--node", "a")
	if code != 0 || strings.Contains(stdout, "Starting") || !strings.Contains(stdout, "SwapUndone") {
		t.Errorf("exit %d: %s", code, stdout)
	}
}

// TestDiff prints the lines of each node.
func TestDiff(t *testing.T) {
	c := newCluster(map[string]answer{"a": {stdout: "nothing differs\n"}, "b": {stdout: "missing: cluster-ip 10.96.0.1:80\n    serves nothing\n1 difference\n", code: 1}},
		hostPod("kube-system", "p-a", "a"), hostPod("kube-system", "p-b", "b"))
	const differs = "b missing: cluster-ip 10.96.0.1:80\nb serves nothing\nb 1 difference\n"
	c.expect(t, exitFailed, "NODE ANSWER\na nothing differs\n"+differs, "diff")
	if _, stdout, stderr := c.says("diff"); !strings.HasPrefix(stdout, "NODE  ANSWER\na     nothing") || stderr != "2 of 2 nodes answered, 0 did not\n" {
		t.Errorf("the table is\n%s%s", stdout, stderr)
	}
	c.expect(t, exitFailed, "NODE ANSWER\n"+differs, "diff", "--problems")
	c.expect(t, 0, "NODE ANSWER\na nothing differs\n", "diff", "--node", "a")
	c.expect(t, exitNoAnswer, "NODE ANSWER\nz no answer: no pod of Pointsman is on this node\n", "diff", "--node", "z")
}

// TestExplain: the node of the caller gets the question, with the caller's address there.
func TestExplain(t *testing.T) {
	onNode := pod("agent", "b", "192.0.2.2", "2001:db8::2")
	onNode.Spec.HostNetwork = true
	ended := pod("job", "a", "10.244.2.9")
	ended.Status.Phase = corev1.PodSucceeded
	for _, tc := range []struct{ src, dst, flags, want string }{
		{"shop/web", "10.96.0.1:80", "", "a explain pod:10.244.1.7 10.96.0.1:80"},
		{"shop/web", "[fd00::1]:53/udp", "", "a explain pod:fd00:1::7 [fd00::1]:53/udp"},
		{"shop/agent", "10.96.0.1:80", "", "b explain node:192.0.2.2 10.96.0.1:80"},
		{"shop/web", "10.96.0.1:80", "--node=a", "a explain pod:10.244.1.7 10.96.0.1:80"},
		{"shop/web", "10.96.0.1:80", "--node=b", "b explain outside:10.244.1.7 10.96.0.1:80"},
		{"10.244.1.7", "10.96.0.1:80", "--try", "a explain pod:10.244.1.7 10.96.0.1:80 --try"},
		{"pod:10.244.2.9", "10.96.0.1:80", "", "b explain pod:10.244.2.9 10.96.0.1:80"},
		{"192.0.2.1", "10.96.0.1:80", "", "a explain 192.0.2.1 10.96.0.1:80"},
		{"node:192.0.2.2", "10.96.0.1:80", "", "b explain node:192.0.2.2 10.96.0.1:80"},
		{"outside:198.51.100.7", "192.0.2.2:30080", "", "b explain outside:198.51.100.7 192.0.2.2:30080"},
		{"outside:198.51.100.7", "10.96.0.1:80", "--node=b", "b explain outside:198.51.100.7 10.96.0.1:80"},
		{"node", "10.96.0.1:80", "--node=a", "a explain node 10.96.0.1:80"},
		{"node", "10.96.0.1:80", "", ""},
		{"outside:198.51.100.7", "10.96.0.1:80", "", ""},
		{"shop/none", "10.96.0.1:80", "", ""},
		{"10.244.9.9", "10.96.0.1:80", "", ""},
	} {
		c := newCluster(map[string]answer{"a": {stdout: "verdict  forward\n"}, "b": {stdout: "verdict  cannot tell\n", code: 2}}, node("a", "", "192.0.2.1"), node("b", "", "192.0.2.2"),
			hostPod("kube-system", "p-a", "a"), hostPod("kube-system", "p-b", "b"), pod("web", "a", "10.244.1.7", "fd00:1::7"), ended, pod("api", "b", "10.244.2.9"), onNode)
		c.selects()
		code, stdout, stderr := c.says(append([]string{"explain", tc.src, tc.dst}, strings.Fields(tc.flags)...)...)
		if tc.want == "" {
			if code != exitUsage || !strings.Contains(stderr, "try: --node NAME") || len(c.ran) > 0 {
				t.Errorf("%s %s exits with %d, and ran %q: %s", tc.src, tc.dst, code, c.ran, stderr)
			}
			continue
		}
		at, _, _ := strings.Cut(tc.want, " ")
		want := map[string]string{"a": "NODE  ANSWER\na     verdict  forward\n", "b": "NODE  ANSWER\nb     verdict  cannot tell\n"}[at]
		wantCode := map[string]int{"a": 0, "b": 2}[at]
		if command := strings.Replace(tc.want, " ", " "+binary+" ", 1); code != wantCode || stdout != want || !slices.Equal(c.ran, []string{command}) {
			t.Errorf("%s %s exits with %d, and ran %q, want %q:\n%s%s", tc.src, tc.dst, code, c.ran, command, stdout, stderr)
		}
	}
}

// selects makes lists of pods apply field selectors, as the API server does.
func (c *cluster) selects() {
	c.PrependReactor("list", "pods", func(action kubetesting.Action) (bool, runtime.Object, error) {
		list := action.(kubetesting.ListAction)
		found, err := c.Tracker().List(corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithKind("Pod"), list.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		pods := found.(*corev1.PodList)
		pods.Items = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
			set := fields.Set{"metadata.name": p.Name, "status.phase": string(p.Status.Phase)}
			if len(p.Status.PodIPs) > 0 {
				set["status.podIP"] = p.Status.PodIPs[0].IP
			}
			return !list.GetListRestrictions().Fields.Matches(set) || !list.GetListRestrictions().Labels.Matches(labels.Set(p.Labels))
		})
		return true, pods, nil
	})
}

// TestNamespaces finds the pods in the usual namespace, in the namespace of -n, or in any.
func TestNamespaces(t *testing.T) {
	for _, tc := range []struct {
		in, flags, want string
		code            int
	}{
		{"kube-system", "", "a", 0}, {"net", "", "a", 0}, {"net", "-n net", "a", 0}, {"net", "-n kube-system", "", 1}, {"kube-system", "--namespace=net", "", 1},
	} {
		c := newCluster(map[string]answer{"a": {stdout: "nothing differs\n"}}, hostPod(tc.in, "p-a", "a"))
		code, stdout, stderr := c.says(append([]string{"diff"}, strings.Fields(tc.flags)...)...)
		if code != tc.code || code == 0 && !strings.Contains(stdout, "\na") || code == 1 && !strings.Contains(stderr, "try: -n NAMESPACE") {
			t.Errorf("pods in %s are found with %q: exit %d: %s%s", tc.in, tc.flags, code, stdout, stderr)
		}
	}
}

// TestForbidden: without permission to list nodes the answers are the same; without permission to list pods it fails.
func TestForbidden(t *testing.T) {
	for resource, want := range map[string]int{"nodes": 0, "pods": exitFailed} {
		c := newCluster(map[string]answer{"a": {stdout: well}}, hostPod("kube-system", "p-a", "a"))
		c.PrependReactor("list", resource, func(kubetesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(corev1.Resource(resource), "", errors.New("user bob may not"))
		})
		if code, stdout, stderr := c.says("status"); code != want || code != 0 && !strings.Contains(stderr, "user bob may not") {
			t.Errorf("without the right to list %s it exits with %d: %s%s", resource, code, stdout, stderr)
		}
	}
}

// TestUsage: a mistake on the command line exits with 64 before any request.
func TestUsage(t *testing.T) {
	for _, args := range []string{"restart", "status all", "status --bogus", "status -o wide", "status --timeout 0s", "status --timeout 2", "events --since -1h", "explain 10.0.0.1", "explain here 10.0.0.1:80", "explain node 10.0.0.1", "explain --problems node 10.0.0.1:80"} {
		c := newCluster(nil)
		if code, stdout, stderr := c.says(strings.Fields(args)...); code != exitUsage || stdout != "" || !strings.HasPrefix(stderr, "kubectl pointsman: ") || len(c.Actions()) > 0 {
			t.Errorf("%s exits with %d: %s%s", args, code, stdout, stderr)
		}
	}
	if code, stdout, _ := newCluster(nil).says("--help"); code != 0 || !strings.Contains(stdout, "kubectl pointsman [command]") {
		t.Errorf("help exits with %d: %s", code, stdout)
	}
	var out, errs bytes.Buffer
	if code := execute([]string{"status", "--kubeconfig", t.TempDir() + "/none"}, &out, &errs, connect); code != exitFailed || !strings.Contains(errs.String(), "/none") {
		t.Errorf("without a kubeconfig: exit %d: %s%s", code, &out, &errs)
	}
}
