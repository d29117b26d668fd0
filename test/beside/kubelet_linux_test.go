// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pointsman/pointsman/test/cluster"
)

// A kubelet replaces the scheduler and the kubelet of one machine: it binds the pods of DaemonSets, runs the containers of
// each pod, and reports their state.
type kubelet struct {
	*contest
	node string
	p    *proxy                           // its network
	root string                           // replaces a machine's folder / for volumes
	pods map[string]map[string]*container // by UID, and by the container's name
}

// A container is a process in the machine's network namespace, with its own PID and mount
// namespaces.
type container struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// kubelet starts a kubelet, which ends with the test.
func (c *contest) kubelet(node string) *kubelet {
	c.Helper()
	p := newProxy(c, theirNft, c.api, cluster.Token(cluster.Admin))
	k := &kubelet{c, node, p, c.TempDir(), make(map[string]map[string]*container)}
	ctx, cancel := context.WithCancel(c.Context())
	ended := make(chan struct{})
	go func() { // ends with ctx
		defer close(ended)
		for tick := time.NewTicker(100 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			if err := k.sync(ctx); err != nil && ctx.Err() == nil {
				c.Errorf("the kubelet of %s: %v", node, err)
				return
			}
		}
	}()
	c.Cleanup(func() {
		cancel()
		<-ended
		for _, containers := range k.pods {
			for _, c := range containers {
				c.signal(syscall.SIGKILL)
				<-c.ended
			}
		}
		logs, _ := filepath.Glob(filepath.Join(k.root, "*.log")) // the pattern is valid
		for _, file := range logs {
			text, _ := os.ReadFile(file)
			c.Logf("%s of %s:\n%s", filepath.Base(file), node, text)
		}
	})
	return k
}

// sync binds, runs, probes or ends each pod, as its state requires.
func (k *kubelet) sync(ctx context.Context) error {
	all, err := k.CoreV1().Pods("kube-system").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, p := range all.Items {
		switch {
		case p.Spec.NodeName == "" && wantsNode(p) == k.node:
			err = k.CoreV1().Pods(p.Namespace).Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: k.node}}, metav1.CreateOptions{})
		case p.Spec.NodeName == k.node:
			err = k.step(ctx, &p)
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // else it is another process by now
			return fmt.Errorf("pod %s: %w", p.Name, err)
		}
	}
	return nil
}

// wantsNode returns the node that the DaemonSet controller made p for.
func wantsNode(p corev1.Pod) string {
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, f := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields {
			return f.Values[0]
		}
	}
	return ""
}

func (k *kubelet) step(ctx context.Context, p *corev1.Pod) error {
	containers := k.pods[string(p.UID)]
	switch {
	case p.DeletionTimestamp != nil:
		if slices.ContainsFunc(slices.Collect(maps.Values(containers)), func(c *container) bool { return !c.exited() }) {
			grace, cancel := context.WithTimeout(ctx, time.Duration(*p.DeletionGracePeriodSeconds)*time.Second)
			defer cancel()
			for _, c := range containers {
				c.signal(syscall.SIGTERM)
			}
			for _, c := range containers {
				select {
				case <-c.ended:
				case <-grace.Done():
					c.signal(syscall.SIGKILL)
					<-c.ended
				}
			}
			return k.report(ctx, p) // a Job's pod stays until its controller has seen this
		}
		now := int64(0)
		return k.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
	case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		return nil
	case containers == nil:
		containers = make(map[string]*container)
		k.pods[string(p.UID)] = containers
	}
	for _, spec := range p.Spec.Containers {
		if c := containers[spec.Name]; c == nil || c.exited() && p.Spec.RestartPolicy == corev1.RestartPolicyAlways {
			c, err := k.run(ctx, p, spec)
			if err != nil {
				return err
			}
			containers[spec.Name] = c
		}
	}
	return k.report(ctx, p)
}

// report writes the pod's status if it has changed. A pod that ends has one container.
func (k *kubelet) report(ctx context.Context, p *corev1.Pod) error {
	c := k.pods[string(p.UID)][p.Spec.Containers[0].Name]
	ready, phase := corev1.ConditionFalse, corev1.PodRunning
	switch {
	case c.exited() && c.cmd.ProcessState.ExitCode() == 0:
		phase = corev1.PodSucceeded
	case c.exited():
		phase = corev1.PodFailed
	case !slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool { return !k.ready(c.ReadinessProbe) }):
		ready = corev1.ConditionTrue
	}
	if p.Status.Phase == phase && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == ready }) {
		return nil
	}
	p.Status.Phase = phase
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()}}
	_, err := k.CoreV1().Pods(p.Namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{})
	return err
}

func (k *kubelet) ready(probe *corev1.Probe) bool {
	if probe == nil {
		return true
	}
	url := fmt.Sprintf("http://127.0.0.1:%d%s", probe.HTTPGet.Port.IntValue(), probe.HTTPGet.Path)
	answer, _, err := k.p.fetch("node", url)
	return err == nil && answer.StatusCode == 200
}

// run runs a container of the pod. Its programs are those under test, its other files the machine's.
func (k *kubelet) run(ctx context.Context, p *corev1.Pod, c corev1.Container) (*container, error) {
	words := append(slices.Clone(c.Command), c.Args...)
	if len(c.Command) == 0 {
		words = append([]string{"pointsman"}, words...) // from the image
	}
	switch filepath.Base(words[0]) {
	case "pointsman":
		words[0] = filepath.Join(cluster.Binaries, "pointsman")
	case "kube-proxy":
		words[0], _ = filepath.Abs("../../bin/peers/kube-proxy")
	}
	environ := os.Environ()
	for _, e := range c.Env {
		if e.ValueFrom != nil { // only the node's name is supported
			e.Value = k.node
		}
		environ = append(environ, e.Name+"="+e.Value)
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], "$("+e.Name+")", e.Value)
		}
	}
	script := "mount -t tmpfs run /run && mount -t tmpfs lib /var/lib && mount -t tmpfs libexec /usr/libexec\nexport TMPDIR=/run\n" + bind(cluster.Binaries, "/usr/libexec/pointsman")
	mounts, err := k.mounts(ctx, p, c)
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(k.log(p), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command("unshare", append([]string{"--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec", script + mounts + `exec "$@"`, "sh"}, words...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = environ, log, log
	ended, err := k.p.begin(cmd)
	return &container{cmd, ended}, err
}

// log returns the file for a pod's output: pods of one DaemonSet or Job share it, one after another.
func (k *kubelet) log(p *corev1.Pod) string {
	return filepath.Join(k.root, p.OwnerReferences[0].Name+".log")
}

// mounts returns the commands that mount the pod's volumes where a container wants them. Each container gets the pod's
// token.
func (k *kubelet) mounts(ctx context.Context, p *corev1.Pod, c corev1.Container) (string, error) {
	text := ""
	for _, m := range c.VolumeMounts {
		v := p.Spec.Volumes[slices.IndexFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })]
		switch {
		case v.HostPath != nil && v.HostPath.Path == "/lib/modules": // exists on the machine
		case v.HostPath != nil && *v.HostPath.Type == corev1.HostPathFileOrCreate:
			at := filepath.Join(k.root, filepath.Base(v.HostPath.Path))
			text += fmt.Sprintf("touch %s %s && mount --bind %s %s\n", at, m.MountPath, at, m.MountPath)
		case v.HostPath != nil:
			text += bind(filepath.Join(k.root, v.HostPath.Path), m.MountPath)
		case v.EmptyDir != nil:
			text += bind(filepath.Join(k.root, "volumes", string(p.UID), v.Name), m.MountPath)
		case v.ConfigMap != nil:
			object, err := k.CoreV1().ConfigMaps(p.Namespace).Get(ctx, v.ConfigMap.Name, metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			at, err := k.folder(p, v.Name, object.Data)
			if err != nil {
				return "", err
			}
			text += bind(at, m.MountPath)
		}
	}
	token, err := k.account(ctx, p)
	if err != nil {
		return "", err
	}
	at, err := k.folder(p, "account", token)
	return text + bind(at, "/run/secrets/kubernetes.io/serviceaccount"), err
}

// account returns the files with the pod's credentials.
func (k *kubelet) account(ctx context.Context, p *corev1.Pod) (map[string]string, error) {
	if p.Spec.ServiceAccountName == "" {
		return nil, nil
	}
	answer, err := k.CoreV1().ServiceAccounts(p.Namespace).CreateToken(ctx, p.Spec.ServiceAccountName, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(k.api.CA)
	return map[string]string{"token": answer.Status.Token, "ca.crt": string(ca)}, err
}

// folder writes a volume's files, again for each pod.
func (k *kubelet) folder(p *corev1.Pod, name string, files map[string]string) (string, error) {
	at := filepath.Join(k.root, "volumes", string(p.UID), name)
	if err := os.MkdirAll(at, 0o755); err != nil {
		return "", err
	}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(at, file), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	return at, nil
}

func bind(from, to string) string {
	return fmt.Sprintf("mkdir -p %[1]s %[2]s && mount --bind %[1]s %[2]s\n", from, to)
}

func (c *container) exited() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// signal sends sig to the container's first process, the child of the process that was started.
func (c *container) signal(sig syscall.Signal) {
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", c.cmd.Process.Pid))
	pid := c.cmd.Process.Pid
	if _, err := fmt.Sscan(string(children), &pid); err != nil { // it is ending, or has not started yet
		sig = syscall.SIGKILL
	}
	_ = syscall.Kill(pid, sig)
}
