// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A pod is one of a DaemonSet's, on a node. For each container there is a goroutine that does a
// kubelet's part until the pod is stopped: it runs the container, begins another one when it ended, and
// ends it when its liveness probe has failed often enough.
type pod struct {
	*node
	form form
	dir  string // has its volumes

	stop    chan struct{}
	stopped sync.WaitGroup

	mu      sync.Mutex // guards what follows
	version map[string]string
	running map[string]string // the container's id, by its name
	begun   map[string]int    // how many were
}

// begin begins a pod whose containers are of images of a version: "" as they were made, or "next".
func (n *node) begin(f form, version string) *pod {
	n.Helper()
	n.pods++
	p := &pod{node: n, form: f, dir: n.path(fmt.Sprintf("pods/%d", n.pods)), stop: make(chan struct{}), version: make(map[string]string), running: make(map[string]string), begun: make(map[string]int)}
	for _, v := range f.pod.Volumes {
		p.provide(v)
	}
	for _, c := range f.pod.Containers {
		p.version[c.Name] = version
		n.unpacked(c.Image, "")
		n.unpacked(c.Image, "next")
	}
	for _, c := range f.pod.Containers {
		p.stopped.Go(func() { p.keep(c) }) // ends when stop is closed
	}
	n.current = p
	return p
}

// provide makes a volume be.
func (p *pod) provide(v corev1.Volume) {
	p.Helper()
	at := p.volume(v.Name)
	var err error
	switch {
	case v.HostPath != nil && v.HostPath.Type != nil && *v.HostPath.Type == corev1.HostPathFileOrCreate:
		err = errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, nil, 0o644))
	case v.ConfigMap != nil:
		err = errors.Join(os.MkdirAll(at+"/services", 0o755), os.WriteFile(at+"/host.yaml", []byte(p.form.settings), 0o644), os.WriteFile(at+"/services/web.yaml", []byte(manifest), 0o644))
	case v.EmptyDir != nil: // as a kubelet gives it to the pod's group
		err = os.MkdirAll(at, 0o755)
		if s := p.form.pod.SecurityContext; s != nil && s.FSGroup != nil {
			err = errors.Join(err, os.Chown(at, 0, int(*s.FSGroup)))
		}
		err = errors.Join(err, os.Chmod(at, 0o777|os.ModeSetgid))
	default:
		err = os.MkdirAll(at, 0o755)
	}
	if err != nil {
		p.Fatal(err)
	}
}

// volume is where on this machine a volume is.
func (p *pod) volume(name string) string {
	for _, v := range p.form.pod.Volumes {
		if v.Name == name && v.HostPath != nil {
			return p.path("root" + v.HostPath.Path)
		}
	}
	return filepath.Join(p.dir, name)
}

// keep runs a container, and another one whenever it ends, until the pod is stopped.
func (p *pod) keep(c corev1.Container) {
	for {
		id, ended, err := p.launch(c)
		if err != nil {
			p.Errorf("container %s: %v", c.Name, err)
			return
		}
		if !p.watch(c, id, ended) {
			return
		}
		select { // a kubelet waits longer, and for the first time not at all
		case <-p.stop:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// launch begins a container.
func (p *pod) launch(c corev1.Container) (id string, ended chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun[c.Name]++
	id = fmt.Sprintf("%s-%s-%d", filepath.Base(p.dir), c.Name, p.begun[c.Name])
	bundle := filepath.Join(p.dir, "bundle-"+id)
	root, image := p.unpacked(c.Image, p.version[c.Name])
	root, err = overlay(root, bundle)
	if err != nil {
		return id, nil, err
	}
	text, err := json.Marshal(p.spec(c, image, root))
	if err == nil {
		err = os.WriteFile(bundle+"/config.json", text, 0o644)
	}
	if err != nil {
		return id, nil, err
	}
	log, err := os.OpenFile(p.path(c.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return id, nil, err
	}
	defer log.Close()
	cmd := p.runc("run", "--bundle", bundle, id)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return id, nil, err
	}
	ended = make(chan struct{})
	go func() { // ends with the container
		_ = cmd.Wait()
		_ = syscall.Unmount(root, syscall.MNT_DETACH)
		close(ended)
	}()
	p.running[c.Name] = id
	return id, ended, nil
}

// overlay is an image's files as a container has them: what it writes is its own, and they are a file
// system apart, by which the host knows a volume that is mounted there.
func overlay(image, bundle string) (root string, err error) {
	root = bundle + "/root"
	for _, at := range []string{root, bundle + "/upper", bundle + "/work"} {
		err = errors.Join(err, os.MkdirAll(at, 0o755))
	}
	if err != nil {
		return "", err
	}
	if err := syscall.Mount("overlay", root, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%[2]s/work", image, bundle)); err != nil {
		return "", fmt.Errorf("mount %s: %w", root, err)
	}
	return root, nil
}

// watch waits until a container has ended, and ends it where its liveness probe says so; false: the pod is
// stopped, and the container with it.
func (p *pod) watch(c corev1.Container, id string, ended chan struct{}) bool {
	failures, every := 0, 10*time.Second
	probe := c.LivenessProbe
	if probe.PeriodSeconds > 0 {
		every = time.Duration(probe.PeriodSeconds) * time.Second
	}
	for tick := time.NewTicker(every); ; {
		select {
		case <-ended:
			return true
		case <-p.stop:
			p.end(id, ended)
			return false
		case <-tick.C:
		}
		if failures++; p.lives(c, id) == nil {
			failures = 0
		}
		if failures >= int(max(probe.FailureThreshold, 3)) {
			p.end(id, ended)
			return true
		}
	}
}

// end ends a container as a kubelet does: at first it asks.
func (p *pod) end(id string, ended chan struct{}) {
	_ = p.runc("kill", id, "TERM").Run()
	select {
	case <-ended:
	case <-time.After(time.Duration(number(p.form.pod.TerminationGracePeriodSeconds)) * time.Second):
		_ = p.runc("kill", id, "KILL").Run()
		<-ended
	}
}

// lives asks a container's liveness probe.
func (p *pod) lives(c corev1.Container, id string) error {
	if c.LivenessProbe.Exec == nil {
		return ask(c.LivenessProbe.HTTPGet)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(max(c.LivenessProbe.TimeoutSeconds, 1))*time.Second)
	defer cancel()
	words := append([]string{"--root", p.path("runc"), "exec", id}, c.LivenessProbe.Exec.Command...)
	return exec.CommandContext(ctx, "runc", words...).Run()
}

// ask asks a probe over HTTP, at the node.
func ask(get *corev1.HTTPGetAction) error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d%s", get.Port.IntValue(), get.Path))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

// replace has one container of the pod be of another image, as `kubectl set image pod/…` does.
func (p *pod) replace(name, version string) {
	p.Helper()
	p.mu.Lock()
	p.version[name] = version
	id := p.running[name]
	p.mu.Unlock()
	if out, err := p.runc("kill", id, "TERM").CombinedOutput(); err != nil {
		p.Errorf("runc kill: %v: %s", err, out)
	}
}

// evict ends the pod, and takes away what was its own.
func (p *pod) evict() {
	p.Helper()
	close(p.stop)
	p.stopped.Wait()
	p.current = nil
	if err := os.RemoveAll(p.dir); err != nil {
		p.Error(err)
	}
}

// words are the last that its containers said.
func (p *pod) words() string {
	var all strings.Builder
	for _, c := range p.form.pod.Containers {
		text, _ := os.ReadFile(p.path(c.Name + ".log"))
		fmt.Fprintf(&all, "%s:\n%s\n", c.Name, text[max(0, len(text)-4096):])
	}
	return all.String()
}
