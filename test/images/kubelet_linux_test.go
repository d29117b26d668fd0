// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pointsman/pointsman/test/cluster"
	"github.com/pointsman/pointsman/test/eventually"
)

// within is how long a pod may take: each comes from images that are pulled and unpacked.
const within = 4 * time.Minute

// A fleet is a cluster of one machine: a real API server with the controller of DaemonSets, and a real
// kubelet. In the place of a scheduler the test binds pods, to the one node that there is.
type fleet struct {
	*machine
	api   *cluster.Cluster
	kube  kubernetes.Interface
	only  *regexp.Regexp // the names of what is to be done
	lived int            // how much of that was
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	n := newNode(t)
	for _, program := range []string{"kubelet", "containerd", "containerd-shim-runc-v2"} {
		if _, err := os.Stat("../../bin/nodes/" + program); err != nil {
			t.Skip("needs a kubelet and a containerd: make nodes builds them, in some minutes")
		}
	}
	m := newMirror(t, "host", "pointsman", "dataplane-iptables", "dataplane-nftables", "dataplane-userspace")
	f := &fleet{api: cluster.Start(t, cluster.Options{Pods: true})}
	f.machine = n.machine(f.api, m)
	f.api.StartControllers("daemonset-controller", "garbage-collector-controller", "root-ca-certificate-publisher-controller")
	config, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	if f.kube, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	f.serve()
	f.on()
	eventually.SucceedsWithin(t, within, "the node is ready", func() error {
		node, err := f.kube.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %+v", node.Status.Conditions)
	})
	return f
}

// serve creates the Service that is called.
func (f *fleet) serve() {
	f.Helper()
	f.to = netip.MustParseAddrPort("10.96.0.10:8080")
	port, tcp := int32(8080), corev1.ProtocolTCP
	_, err := f.kube.CoreV1().Services("default").Create(f.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{ClusterIP: f.to.Addr().String(), Ports: []corev1.ServicePort{{Port: port, Protocol: tcp}}},
	}, metav1.CreateOptions{})
	if err != nil {
		f.Fatal(err)
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &port, Protocol: &tcp}},
	}
	for _, b := range backends {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{b.Addr().String()}})
	}
	if _, err = f.kube.DiscoveryV1().EndpointSlices("default").Create(f.Context(), slice, metav1.CreateOptions{}); err != nil {
		f.Fatal(err)
	}
}

// kubectl does what an administrator would.
func (f *fleet) kubectl(input string, words ...string) {
	f.Helper()
	cmd := exec.CommandContext(f.Context(), "../../bin/peers/kubectl", append([]string{"--kubeconfig", f.kubeconfig, "--namespace", "kube-system"}, words...)...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		f.Fatalf("kubectl %v: %v: %s", words, err, out)
	}
}

// apply applies a form's manifests, with what a cluster's administrator sets in them: where the API server
// is before its Service is served, and that conntrack's limits, which are all machines', stay.
func (f *fleet) apply(w form) {
	f.Helper()
	host, port, _ := strings.Cut(f.api.Addr(), ":")
	d := appsv1.DaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: w.daemon.ObjectMeta, Spec: *w.daemon.Spec.DeepCopy(),
	}
	c := &d.Spec.Template.Spec.Containers[0]
	c.Env = append(c.Env, corev1.EnvVar{Name: "KUBERNETES_SERVICE_HOST", Value: host}, corev1.EnvVar{Name: "KUBERNETES_SERVICE_PORT", Value: port})
	settings := corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "pointsman", Namespace: "kube-system"},
		Data:       map[string]string{"host.yaml": strings.Replace(w.settings, "files: {path: services}", "kubernetes: {}", 1)},
	}
	f.kubectl("", "apply", "-f", "../../configs/kubernetes/rbac.yaml")
	for _, o := range []any{settings, d} {
		text, err := json.Marshal(o)
		if err != nil {
			f.Fatal(err)
		}
		f.kubectl(string(text), "apply", "-f", "-")
	}
}

// ready waits until the one pod there is is another one than the named, is ready, and serves in a mode;
// pods that want a node get it.
func (f *fleet) ready(mode, former string) corev1.Pod {
	f.Helper()
	var pod corev1.Pod
	eventually.SucceedsWithin(f, within, mode+" serves, in a pod that is not "+former, func() error {
		all, err := f.bind()
		if err != nil {
			return err
		}
		if len(all) != 1 {
			return fmt.Errorf("there are %d pods", len(all))
		}
		pod = all[0]
		if pod.Name == former || !isReady(pod) {
			return fmt.Errorf("pod %s: %+v", pod.Name, pod.Status)
		}
		return f.metric(`pointsman_plugin_active{plugin="` + mode + `"} 1`)
	})
	return pod
}

// bind gives the node to pods that have none, and lists all.
func (f *fleet) bind() ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(f.Context(), 10*time.Second)
	defer cancel()
	all, err := f.kube.CoreV1().Pods("kube-system").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, p := range all.Items {
		if p.Spec.NodeName == "" {
			err := f.kube.CoreV1().Pods(p.Namespace).Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}, metav1.CreateOptions{})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // else it is another by now
				return nil, err
			}
		}
	}
	return all.Items, nil
}

func isReady(p corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil
		}
	}
	return false
}

// metric checks that the host says a line at its metrics.
func (f *fleet) metric(line string) error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://127.0.0.1:10249/metrics")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || !strings.Contains(string(text), line+"\n") {
		return fmt.Errorf("its metrics do not say %s: %w", line, err)
	}
	return nil
}

// replace has a container of the pod be of the next image, and waits until it is and the pod is ready.
func (f *fleet) replace(mode, pod, container, image string) {
	f.Helper()
	f.kubectl("", "set", "image", "pod/"+pod, container+"="+prefix+image+":next")
	eventually.SucceedsWithin(f, within, container+" is of the next image", func() error {
		p, err := f.kube.CoreV1().Pods("kube-system").Get(f.Context(), pod, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range p.Status.ContainerStatuses {
			if c.Name == container && strings.HasSuffix(c.Image, ":next") && c.State.Running != nil && isReady(*p) {
				return f.metric(`pointsman_plugin_active{plugin="` + mode + `"} 1`)
			}
		}
		return fmt.Errorf("the containers are %+v", p.Status.ContainerStatuses)
	})
}

// evict evicts a pod as a drain does, and waits until another one serves.
func (f *fleet) evict(mode, pod string) {
	f.Helper()
	err := f.kube.PolicyV1().Evictions("kube-system").Evict(f.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: "kube-system"}})
	if err != nil {
		f.Fatal(err)
	}
	f.ready(mode, pod)
}

// reset cuts the power of the machine, with all that the kernel had, and starts it again: the pod that the
// node had is there again, and serves.
func (f *fleet) reset(mode string, pod corev1.Pod) {
	f.Helper()
	f.off()
	f.forget()
	if err := f.metric(""); err == nil {
		f.Fatal("the machine is off, and a host answers")
	}
	f.on()
	eventually.SucceedsWithin(f, within, "the pod's containers are others", func() error {
		p, err := f.kube.CoreV1().Pods("kube-system").Get(f.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for i, c := range p.Status.ContainerStatuses {
			if c.State.Running == nil || c.ContainerID == pod.Status.ContainerStatuses[i].ContainerID {
				return fmt.Errorf("container %s: %+v", c.Name, c.State)
			}
		}
		return nil
	})
	f.ready(mode, "")
	l := f.load()
	time.Sleep(time.Second) // of traffic
	l.Done(f, mode+": after a reset")
}

// gone takes the DaemonSet away, and what it left on the machine.
func (f *fleet) gone() {
	f.Helper()
	f.kubectl("", "delete", "daemonset", "pointsman", "--timeout=4m")
	eventually.SucceedsWithin(f, within, "its pod is gone", func() error {
		all, err := f.bind()
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("there is %s", all[0].Name)
		}
		return err
	})
	f.off()
	f.forget()
	if err := os.RemoveAll(f.path("root/var/lib/pointsman")); err != nil {
		f.Fatal(err)
	}
	f.on()
}

// livesEnv, if it is set, is a pattern: the lives of other names are left out.
const livesEnv = "KUBELET_LIVES"

// TestKernelKubelet runs the images as pods of a real kubelet, in the DaemonSets of configs/. Connections
// through userspace end with its process, so its pod is neither upgraded nor evicted under traffic.
func TestKernelKubelet(t *testing.T) {
	f := newFleet(t)
	only, err := regexp.Compile(os.Getenv(livesEnv))
	if err != nil {
		t.Fatalf("%s: %v", livesEnv, err)
	}
	f.only = only
	defer func() {
		if f.lived == 0 {
			t.Errorf("no life has a name like %s=%s", livesEnv, only)
		}
	}()
	for _, mode := range []string{"iptables", "nftables", "userspace"} {
		f.lives(mode, "one container", oneContainer(t, mode), func(pod string) {
			f.kubectl("", "set", "image", "daemonset/pointsman", "pointsman="+prefix+"pointsman:next")
			f.evict(mode, f.ready(mode, pod).Name)
		})
	}
	for _, mode := range []string{"iptables", "nftables", "userspace"} {
		options := "{}"
		if mode == "iptables" {
			options = "{localhostNodePorts: false}"
		}
		f.lives(mode, "a container each", containerEach(t, mode, options), func(pod string) {
			f.replace(mode, pod, "pointsman", "host")
			f.replace(mode, pod, mode, "dataplane-"+mode)
			f.evict(mode, pod)
		})
	}
}

// lives has a form begin, be upgraded and evicted under traffic, lose its power, and go.
func (f *fleet) lives(mode, named string, w form, upgrade func(pod string)) {
	f.Helper()
	named = mode + ": " + named
	if !f.only.MatchString(named) {
		f.Logf("%s: left out, for %s is %q", named, livesEnv, f.only)
		return
	}
	f.lived++
	f.apply(w)
	pod := f.ready(mode, "")
	l := f.load()
	text := "begun"
	if mode != "userspace" {
		text = "upgraded and evicted"
		upgrade(pod.Name)
		pod = f.ready(mode, pod.Name)
	}
	time.Sleep(time.Second) // of traffic
	l.Done(f, named+", "+text)
	f.reset(mode, pod)
	f.gone()
}
