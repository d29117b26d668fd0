// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	programs "github.com/pointsman/pointsman/test/built"
	"github.com/pointsman/pointsman/test/cluster"
	"github.com/pointsman/pointsman/test/eventually"
)

// within limits the time for a pod, whose images are pulled and unpacked first.
const within = 4 * time.Minute

// A fleet is a cluster: a real API server with the controller of DaemonSets, and machines with real kubelets. The test
// binds pods, in place of a scheduler.
type fleet struct {
	*machine // the first of them
	all      []*machine
	mirror   *mirror
	api      *cluster.Cluster
	kube     kubernetes.Interface
}

// newFleet starts a fleet of one machine, and more at these addresses.
func newFleet(t *testing.T, more ...netip.Addr) *fleet {
	t.Helper()
	n := newNode(t)
	for _, program := range []string{"nodes/kubelet", "nodes/containerd", "nodes/containerd-shim-runc-v2", "helm"} {
		if _, err := os.Stat("../../bin/" + program); err != nil {
			t.Skip("needs a kubelet, a containerd and helm: make nodes bin/helm builds them, in some minutes")
		}
	}
	if err := programs.Into(n.dir, "", "./host/kubectl-pointsman"); err != nil {
		t.Fatal(err)
	}
	m := newMirror(t, "host", "pointsman", "dataplane-iptables", "dataplane-nftables", "dataplane-userspace")
	f := &fleet{mirror: m, api: cluster.Start(t, cluster.Options{Pods: true, Addr: nodeAddr.String()})}
	f.machine = n.machine("n1", nodeAddr, f.api, m)
	f.all = []*machine{f.machine}
	for i, addr := range more {
		name := fmt.Sprintf("n%d", i+2)
		host, err := n.testbed.Behind(name, addr)
		if err != nil {
			t.Fatal(err)
		}
		f.all = append(f.all, (&node{T: t, dir: n.path(name), testbed: n.testbed, host: host}).machine(name, addr, f.api, m))
	}
	f.api.StartControllers("daemonset-controller", "garbage-collector-controller", "root-ca-certificate-publisher-controller")
	t.Cleanup(func() {
		if t.Failed() {
			said, _ := exec.Command(kubectl, "--kubeconfig", f.kubeconfig, "-n", "kube-system", "logs", "-l", "app.kubernetes.io/name=pointsman", "--all-containers", "--prefix", "--tail=20").CombinedOutput()
			t.Logf("the end of the logs of all pods:\n%s", said)
		}
	})
	f.kube = f.api.Client()
	f.serve()
	for _, v := range f.all {
		v.powerOn()
	}
	for _, v := range f.all {
		eventually.SucceedsWithin(t, within, v.name+" is ready", func() error {
			node, err := f.kube.CoreV1().Nodes().Get(t.Context(), v.name, metav1.GetOptions{})
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
	}
	return f
}

// serve creates the Service that is called.
func (f *fleet) serve() {
	f.Helper()
	port, tcp := int32(8080), corev1.ProtocolTCP
	_, err := f.kube.CoreV1().Services("default").Create(f.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{ClusterIP: service.Addr().String(), Ports: []corev1.ServicePort{{Port: port, Protocol: tcp}}},
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

// run runs kubectl or helm as an administrator would, and returns the output.
func (f *fleet) run(program string, words ...string) string {
	f.Helper()
	home := f.path("home")
	cmd := exec.CommandContext(f.Context(), program, append([]string{"--kubeconfig", f.kubeconfig, "--namespace", "kube-system"}, words...)...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	out, err := cmd.CombinedOutput()
	if err != nil {
		f.Fatalf("%s %v: %v: %s", program, words, err, out)
	}
	return string(out)
}

const (
	kubectl = "../../bin/peers/kubectl"
	helm    = "../../bin/helm"
	chart   = "../../charts/pointsman"
)

// install installs the chart with additional settings of a cluster's administrator: the address of the API server
// before its Service is served, no limits of conntrack, since those are of all machines, and a short drain.
func (f *fleet) install(values string) {
	f.Helper()
	host, port, _ := strings.Cut(f.api.Addr(), ":")
	f.run(helm, "install", "pointsman", chart, "--set", "apiServer.host="+host+",apiServer.port="+port+",config.linux.conntrack.maxPerCore=0,config.swap.drainTimeout=2s,"+values)
}

// ready waits until there is exactly one pod, another one than the named, that is ready and serves in a mode. It binds
// pods to nodes.
func (f *fleet) ready(mode, former string) corev1.Pod {
	f.Helper()
	var pod corev1.Pod
	eventually.SucceedsWithin(f, within, mode+" serves, in a pod that is not "+former, func() error {
		all, err := f.bind()
		if err != nil {
			return err
		}
		if len(all) != 1 {
			return fmt.Errorf("the DaemonSet has %d pods", len(all))
		}
		pod = all[0]
		if pod.Name == former || !isReady(pod) {
			return fmt.Errorf("pod %s: %+v", pod.Name, pod.Status)
		}
		return f.metric(`pointsman_plugin_active{plugin="` + mode + `"} 1`)
	})
	return pod
}

// bind binds pods to the node that they are for, and returns all pods.
func (f *fleet) bind() ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(f.Context(), 10*time.Second)
	defer cancel()
	all, err := f.kube.CoreV1().Pods("kube-system").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, p := range all.Items {
		if p.Spec.NodeName == "" {
			node := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
			err := f.kube.CoreV1().Pods(p.Namespace).Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}, metav1.CreateOptions{})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // else it is another pod by now
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

// metric checks that the host's metrics have a line.
func (f *fleet) metric(line string) error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://127.0.0.1:10249/metrics")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || !strings.Contains(string(text), line+"\n") {
		return fmt.Errorf("the metrics lack %s: %w", line, err)
	}
	return nil
}

// replace changes a container of the pod to the next image, and waits until it runs and the pod is ready.
func (f *fleet) replace(mode, pod, container, image string) {
	f.Helper()
	f.run(kubectl, "set", "image", "pod/"+pod, container+"="+prefix+image+":next")
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

// evict evicts a pod as a drain does, and returns the next one when it serves.
func (f *fleet) evict(mode, pod string) string {
	f.Helper()
	err := f.kube.PolicyV1().Evictions("kube-system").Evict(f.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: "kube-system"}})
	if err != nil {
		f.Fatal(err)
	}
	return f.ready(mode, pod).Name
}

// cutPower cuts the power of the machine, which removes everything from the kernel, and starts the machine again: the
// same pod exists again, and serves.
func (f *fleet) cutPower(mode string, pod corev1.Pod) {
	f.Helper()
	f.powerOff()
	f.clearKernel()
	if err := f.metric(""); err == nil {
		f.Fatal("the machine is off, and a host answers")
	}
	f.powerOn()
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
	l.More(f, 100)
	l.Done(f, mode+": after a reset")
}

// removeAll uninstalls the chart, and removes what it left on the machine.
func (f *fleet) removeAll() {
	f.Helper()
	f.uninstall()
	f.powerOff()
	f.clearKernel()
	if err := os.RemoveAll(f.path("root/var/lib/pointsman")); err != nil {
		f.Fatal(err)
	}
	f.powerOn()
}

func (f *fleet) uninstall() {
	f.Helper()
	f.run(helm, "uninstall", "pointsman", "--wait", "--timeout=4m")
	eventually.SucceedsWithin(f, within, "all pods are deleted", func() error {
		all, err := f.bind()
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("the pod %s exists", all[0].Name)
		}
		return err
	})
}

// TestKernelKubelet runs the images as pods of a real kubelet, by the chart in its forms. Connections through userspace
// end with its process, so its pod is neither upgraded nor evicted under traffic.
func TestKernelKubelet(t *testing.T) {
	f := newFleet(t)
	f.runLife("iptables", "the default", "", func(pod string) {
		f.expectSockets("sockets/iptables", "sockets/nftables")
		f.replace("iptables", pod, "pointsman", "host")
		f.replace("iptables", pod, "iptables", "dataplane-iptables")
		f.hang("iptables")
		f.ready("iptables", "")
		pod = f.evict("iptables", pod)
		pod = f.swap("iptables", "nftables", pod)
		f.replace("nftables", pod, "nftables", "dataplane-nftables")
		f.swap("nftables", "iptables", pod)
	})
	f.runLife("nftables", "one container", "form=children,mode=nftables", func(pod string) {
		f.hang("nftables")
		f.run(kubectl, "set", "image", "daemonset/pointsman", "pointsman="+prefix+"pointsman:next")
		f.evict("nftables", f.ready("nftables", pod).Name)
	})
	f.runLife("userspace", "a container each", "dataplanes={userspace},mode=userspace", nil)
}

// expectSockets checks that only the host's group may enter the folder of each dataplane's socket.
func (f *fleet) expectSockets(folders ...string) {
	f.Helper()
	for _, folder := range folders {
		all, _ := filepath.Glob(f.path("root/var/lib/kubelet/pods/*/volumes/kubernetes.io~empty-dir/" + folder)) // the pattern is valid
		if len(all) != 1 {
			f.Fatalf("%s are the folders %q", folder, all)
		}
		info, err := os.Stat(all[0])
		if err != nil {
			f.Fatal(err)
		}
		if group := info.Sys().(*syscall.Stat_t).Gid; info.Mode().Perm() != 0o750 || group != 65532 {
			f.Errorf("the folder %s is %s, of group %d", folder, info.Mode(), group)
		}
	}
}

// swap changes only the mode, and waits until the next pod serves in that mode and the rules of the old mode are gone.
func (f *fleet) swap(from, to, pod string) string {
	f.Helper()
	f.run(helm, "upgrade", "pointsman", chart, "--reuse-values", "--set", "mode="+to)
	pod = f.ready(to, pod).Name
	rules := map[string]string{"iptables": "iptables-save | grep KUBE-SVC-", "nftables": "nft list table ip pointsman"}[from]
	eventually.SucceedsWithin(f, within, from+" is cleaned up", func() error {
		if out, err := exec.Command("sh", "-c", rules).Output(); err == nil {
			return fmt.Errorf("there are:\n%s", out)
		}
		return nil
	})
	return pod
}

// ask runs kubectl's plugin for the node: the images have the program that it runs, in the container where it runs it.
func (f *fleet) ask(mode, pod string) {
	f.Helper()
	eventually.SucceedsWithin(f, within, "kubectl pointsman is answered", func() error {
		out, err := exec.CommandContext(f.Context(), f.path("kubectl-pointsman"), "status", "--kubeconfig", f.kubeconfig, "--timeout=1m", "-o=json").Output()
		for _, want := range []string{`"node": "n1"`, `"pod": "kube-system/` + pod + `"`, `"mode": "` + mode + `"`} {
			if !strings.Contains(string(out), want) {
				return fmt.Errorf("the output lacks %s: %v: %s", want, err, out)
			}
		}
		return nil
	})
}

// runLife starts a form, changes it under traffic, cuts its power, and removes it.
func (f *fleet) runLife(mode, named, values string, change func(pod string)) {
	f.Helper()
	f.install(values)
	pod := f.ready(mode, "")
	f.ask(mode, pod.Name)
	l := f.load()
	if change != nil {
		change(pod.Name)
		pod = f.ready(mode, pod.Name)
	}
	l.More(f, 100)
	l.Done(f, mode+": "+named)
	f.cutPower(mode, pod)
	f.removeAll()
}
