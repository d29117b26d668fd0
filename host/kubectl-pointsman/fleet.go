// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/pointsman/pointsman/host/admin"
)

// The pods of the chart and of configs/kubernetes.
const (
	label            = "app.kubernetes.io/name=pointsman"
	container        = "pointsman"
	binary           = "/usr/bin/pointsman" // no image has a shell
	defaultNamespace = "kube-system"        // the namespace
)

const (
	apiTimeout    = 10 * time.Second // for lists of pods and nodes
	maxConcurrent = 256              // nodes that are queried at the same time
)

// A fleet is all pods of Pointsman in a cluster.
type fleet struct {
	core     corev1client.CoreV1Interface
	run      func(ctx context.Context, pod *corev1.Pod, command []string) (stdout, stderr []byte, err error)
	timeout  time.Duration
	progress io.Writer
	nodes    []corev1.Node // empty if the user may not list them
}

// A host is the pod that serves a node.
type host struct {
	node string
	pod  *corev1.Pod // nil if the node has none
	down string      // why the cluster considers the node not ready
}

// An Answer is the answer of one node's host, or the error.
type Answer struct {
	Node   string          `json:"node"`
	Pod    string          `json:"pod,omitempty"`
	Error  string          `json:"error,omitempty"`
	Answer json.RawMessage `json:"answer,omitempty"` // the output of pointsman VERB -o json on the node

	text string // the output of a verb without -o json
	code int    // the exit status of the verb
}

// connect returns the fleet of the cluster that kubectl's flags select. It executes commands over a
// websocket, or over SPDY if the cluster does not support that.
func connect(kube clientcmd.ClientConfig) (*fleet, error) {
	config, err := kube.ClientConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // no limit: all nodes are queried at once
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &fleet{core: core, run: func(ctx context.Context, pod *corev1.Pod, command []string) (stdout, stderr []byte, err error) {
		url := core.RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
			VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
		websocket, err := remotecommand.NewWebSocketExecutor(config, "GET", url.String())
		spdy, other := remotecommand.NewSPDYExecutor(config, "POST", url)
		if err = errors.Join(err, other); err != nil {
			return nil, nil, err
		}
		either, err := remotecommand.NewFallbackExecutor(websocket, spdy, func(err error) bool {
			return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
		})
		if err != nil {
			return nil, nil, err
		}
		var out, errs bytes.Buffer
		done := make(chan error, 1)
		go func() { // may end after ctx: not every step of a dial observes it
			done <- either.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &errs})
		}()
		select {
		case err = <-done:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return nil, nil, ctx.Err() // the goroutine may still write to the buffers
		}
		return out.Bytes(), errs.Bytes(), err
	}}, nil
}

// hosts returns the hosts of all nodes, except ready nodes without a pod, which something else may serve.
// Without a namespace it searches the default one, and then all.
func (f *fleet) hosts(ctx context.Context, namespace string) ([]host, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	pods, err := f.core.Pods(cmp.Or(namespace, defaultNamespace)).List(ctx, metav1.ListOptions{LabelSelector: label})
	if err == nil && len(pods.Items) == 0 && namespace == "" {
		pods, err = f.core.Pods("").List(ctx, metav1.ListOptions{LabelSelector: label})
	}
	if err != nil {
		return nil, fmt.Errorf("list the pods of Pointsman: %w; try: -n NAMESPACE", err)
	}
	if len(pods.Items) == 0 {
		return nil, fmt.Errorf("no pod has the label %s; try: -n NAMESPACE, or kubectl config get-contexts", label)
	}
	if nodes, err := f.core.Nodes().List(ctx, metav1.ListOptions{}); err == nil { // without nodes, errors have less detail
		f.nodes = nodes.Items
	}
	best := make(map[string]host) // by the name of the node, or of a pod that is not scheduled
	for i := range pods.Items {
		p := &pods.Items[i]
		key := cmp.Or(p.Spec.NodeName, p.Name)
		if old := best[key].pod; old == nil || old.DeletionTimestamp != nil || podProblem(old) != "" && podProblem(p) == "" {
			best[key] = host{node: cmp.Or(p.Spec.NodeName, "-"), pod: p}
		}
	}
	for i := range f.nodes {
		n := &f.nodes[i]
		if h := best[n.Name]; h.pod != nil || notReady(n) != "" {
			best[n.Name] = host{n.Name, h.pod, notReady(n)}
		}
	}
	return slices.SortedFunc(maps.Values(best), func(a, b host) int { return cmp.Compare(a.node, b.node) }), nil
}

// podProblem returns why commands cannot be executed in a pod, or "" if they can.
func podProblem(p *corev1.Pod) string {
	if p == nil {
		return "no pod of Pointsman is on this node"
	}
	why := cmp.Or(p.Status.Reason, p.Status.Message)
	for _, c := range p.Status.ContainerStatuses {
		if wait := c.State.Waiting; c.Name == container && wait != nil {
			return fmt.Sprintf("pod %s waits: %s %s", p.Name, wait.Reason, wait.Message)
		}
	}
	if p.Status.Phase == corev1.PodRunning {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("pod %s is %s %s", p.Name, cmp.Or(p.Status.Phase, corev1.PodPending), why))
}

// notReady returns why the cluster considers a node not ready, or "" if it is ready.
func notReady(n *corev1.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return "the node is not ready: " + cmp.Or(c.Message, c.Reason, string(c.Status))
		}
	}
	return ""
}

// locateCaller returns the node of the caller src, and the caller's name there. Packets from outside arrive at
// the node that has their destination address.
func (f *fleet) locateCaller(ctx context.Context, q admin.Question, src string) (node, caller string, err error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	addr, namespace, selector := q.From, "", ""
	switch {
	case q.Pod != "":
		namespace, selector, _ = strings.Cut(q.Pod, "/")
		selector = "metadata.name=" + selector
	case q.Caller == admin.CallerOutside:
		addr = q.To.Addr()
	case q.Caller != admin.CallerNode:
		selector = "status.phase=Running,status.podIP=" + addr.String()
	}
	for _, n := range f.nodes {
		if slices.ContainsFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Address == addr.String() }) {
			return n.Name, src, nil
		}
	}
	pods := &corev1.PodList{}
	if selector != "" {
		pods, err = f.core.Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: selector})
	}
	for i := 0; err == nil && i < len(pods.Items); i++ {
		p := &pods.Items[i]
		for _, ip := range p.Status.PodIPs {
			at, _ := netip.ParseAddr(ip.IP)
			switch {
			case p.Spec.NodeName == "" || q.Pod == "" && at != addr || at.Is4() != q.To.Addr().Is4():
			case p.Spec.HostNetwork:
				return p.Spec.NodeName, admin.CallerNode + ":" + at.String(), nil
			default:
				return p.Spec.NodeName, admin.CallerPod + ":" + at.String(), nil
			}
		}
	}
	return "", "", errors.Join(fmt.Errorf("the node of %s is not known, because no Node and no running pod matches it; try: --node NAME", src), err)
}

// ask runs a verb in the pods of all hosts at once, and prints the number of answers.
func (f *fleet) ask(ctx context.Context, all []host, words []string) []Answer {
	answers := make([]Answer, len(all))
	slots := make(chan struct{}, maxConcurrent)
	var queries sync.WaitGroup
	for i, h := range all {
		queries.Go(func() {
			slots <- struct{}{}
			answers[i] = f.askOne(ctx, h, words)
			<-slots
		})
	}
	queries.Wait()
	failed := 0
	for _, a := range answers {
		if a.Error != "" {
			failed++
		}
	}
	fmt.Fprintf(f.progress, "%d of %d nodes answered, %d did not\n", len(all)-failed, len(all), failed)
	return answers
}

func (f *fleet) askOne(ctx context.Context, h host, words []string) Answer {
	a := Answer{Node: h.node, Error: podProblem(h.pod)}
	if h.pod != nil {
		a.Pod = h.pod.Namespace + "/" + h.pod.Name
	}
	if a.Error == "" {
		ctx, cancel := context.WithTimeout(ctx, f.timeout)
		defer cancel()
		stdout, stderr, err := f.run(ctx, h.pod, append([]string{binary}, words...))
		var code exec.CodeExitError
		switch exited := errors.As(err, &code); {
		case ctx.Err() != nil:
			a.Error = fmt.Sprintf("no answer within %s", f.timeout)
		case err != nil && !exited:
			a.Error = err.Error()
		case len(stdout) == 0:
			first, _, _ := strings.Cut(strings.TrimPrefix(string(stderr), "pointsman: "), "\n")
			a.Error = cmp.Or(first, fmt.Sprintf("pointsman printed nothing and exited with %d", code.Code))
		case json.Valid(stdout):
			a.Answer, a.code = stdout, code.Code
		case words[len(words)-1] == asJSON:
			a.Error = fmt.Sprintf("pointsman printed no JSON: %.60q", stdout)
		default:
			a.text, a.code = string(stdout), code.Code
		}
	}
	if a.Error != "" && h.down != "" {
		a.Error += "; " + h.down
	}
	return a
}
