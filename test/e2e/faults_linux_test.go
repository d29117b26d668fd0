// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// load calls all the time, and notes what went wrong.
type load struct {
	stop   context.CancelFunc
	ended  sync.WaitGroup
	mu     sync.Mutex
	calls  int
	failed []string
}

// callGap is between two calls of a load.
const callGap = 10 * time.Millisecond

// underLoad calls to from p, one call after the other, until result. What was called
// before anybody answered has left flows that lead nowhere, which a port that is used
// again would follow: they go first.
func (w *world) underLoad(p *place, to netip.AddrPort) *load {
	w.Helper()
	for _, n := range w.nodes {
		w.served(n)
		w.run(n, "conntrack", "-F")
	}
	ctx, cancel := context.WithCancel(w.Context())
	l := &load{stop: cancel}
	w.Cleanup(func() { cancel(); l.ended.Wait() })
	l.ended.Go(func() { // ends with ctx
		// Closed connections keep their ports for a minute, and there are 28,000.
		for pace := time.NewTicker(callGap); ctx.Err() == nil; <-pace.C {
			got := call(ctx, p, "tcp4", to)
			if ctx.Err() != nil {
				return
			}
			l.mu.Lock()
			if l.calls++; !strings.Contains(got, " saw ") {
				l.failed = append(l.failed, time.Now().Format("05.000 ")+got)
			}
			l.mu.Unlock()
		}
	})
	return l
}

// result ends the load, which no call may have failed of.
func (w *world) result(l *load) {
	w.Helper()
	l.stop()
	l.ended.Wait()
	if len(l.failed) > 0 {
		w.Errorf("%d of %d calls failed: %q", len(l.failed), l.calls, l.failed[:min(5, len(l.failed))])
	}
	if l.calls == 0 {
		w.Error("nobody called")
	}
	w.Logf("%d calls", l.calls)
}

// portRenamed renames a Service's port, and moves its endpoints' with it, while it is
// called.
func portRenamed(w *world, _ mode) {
	a, b := w.nodes[0], w.nodes[1]
	pod := a.pods[0]
	s := w.service("renamed")
	w.endpoints("renamed", b.end(0))
	w.expect(pod, "tcp4", at(s, 0, 80), saw(b.pods[0], backend, pod.addrs[0]))
	l := w.underLoad(pod, at(s, 0, 80))
	for i := range 5 {
		name, number := fmt.Sprintf("p%d", i), int32([]uint16{renamed, backend}[i%2])
		w.bothNames("renamed", name, number, b.end(0)) // what is new goes first, as in any careful change
		w.update("renamed", func(s *corev1.Service) { s.Spec.Ports[0].Name = name })
		w.expect(pod, "tcp4", at(s, 0, 80), saw(b.pods[0], uint16(number), pod.addrs[0]))
	}
	w.result(l)
}

// bothNames adds a port of another name to the slices of a Service.
func (w *world) bothNames(service, name string, number int32, e endpoint) {
	w.Helper()
	for _, suffix := range []string{"-v4", "-v6"} {
		slice, err := w.kube.DiscoveryV1().EndpointSlices(namespace).Get(w.Context(), service+suffix, metav1.GetOptions{})
		if err != nil {
			w.Fatal(err)
		}
		tcp := slice.Ports[0]
		tcp.Name, tcp.Port = &name, &number
		slice.Ports = append(slice.Ports, tcp)
		w.put(slice)
	}
}

// probes are answered as kube-proxy answers them.
func probes(w *world, m mode) {
	a := w.nodes[0]
	for _, path := range []string{"healthz", "livez", "readyz"} {
		body := w.get(w.client, fmt.Sprintf("http://%s:10256/%s", a.addrs[0], path))
		var answer struct{ LastUpdated, CurrentTime time.Time }
		code, text, _ := strings.Cut(body, " ")
		if err := decode(text, &answer); err != nil || code != "200" || answer.LastUpdated.IsZero() {
			w.Errorf("%s: %s: %v", path, body, err)
		}
	}
	w.hears(a.place, "http://127.0.0.1:10249/proxyMode", "200 "+m.name)
	services, err := w.metric(a, "pointsman_services")
	if err != nil || services < 1 {
		w.Errorf("pointsman_services %g: %v", services, err)
	}
	w.eligible(a)
}

// events are written to the cluster, about the Node and about Services.
func events(w *world, _ mode) {
	first := w.service("first", func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"203.0.113.77"} })
	second := w.service("second", func(s *corev1.Service) { s.Spec.ExternalIPs = first.Spec.ExternalIPs })
	w.endpoints("second", w.nodes[0].end(0))
	for reason, about := range map[string]string{"Starting": "Node " + w.nodes[0].name, "FrontendTaken": "Service " + second.Name} {
		w.until("there is an event "+reason+" of "+about, func() error {
			list, err := w.kube.EventsV1().Events(namespace).List(w.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			for _, e := range list.Items {
				if e.ReportingController == "pointsman" && e.Reason == reason && e.Regarding.Kind+" "+e.Regarding.Name == about {
					return nil
				}
			}
			return fmt.Errorf("of %d events none is", len(list.Items))
		})
	}
}

// eligible takes a node out of load balancers' choice, as the autoscaler does.
func (w *world) eligible(n *node) {
	w.Helper()
	code := func() string {
		code, _, _ := strings.Cut(w.get(w.client, fmt.Sprintf("http://%s:10256/healthz", n.addrs[0])), " ")
		return code
	}
	taint := func(list []corev1.Taint, want string) {
		object, err := w.kube.CoreV1().Nodes().Get(w.Context(), n.name, metav1.GetOptions{})
		if err == nil {
			object.Spec.Taints = list
			_, err = w.kube.CoreV1().Nodes().Update(w.Context(), object, metav1.UpdateOptions{})
		}
		if err != nil {
			w.Fatal(err)
		}
		w.until("healthz of a node that goes", func() error {
			if got := code(); got != want {
				return fmt.Errorf("%s, and not %s", got, want)
			}
			return nil
		})
	}
	taint([]corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Effect: corev1.TaintEffectNoSchedule}}, "503")
	taint(nil, "200")
}

// serverAway cuts a node off for a while: what was served is, all the time, and
// what changed meanwhile is brought in.
func serverAway(w *world, _ mode) {
	a, b := w.nodes[0], w.nodes[1]
	pod := a.pods[0]
	s := w.service("kept")
	w.endpoints("kept", b.end(0))
	w.expect(pod, "tcp4", at(s, 0, 80), saw(b.pods[0], backend, pod.addrs[0]))
	l := w.underLoad(pod, at(s, 0, 80))
	w.served(a)
	rules := w.rules(a)
	a.way.cut()
	w.endpoints("kept", b.end(1))
	w.until("the host says so", func() error {
		if got := w.warnings(a); !slices.Contains(got, "W008") {
			return fmt.Errorf("it warns of %v", got)
		}
		return nil
	})
	w.pass(30 * time.Second)
	if now := w.rules(a); now != rules {
		w.Errorf("without the API server the rules changed:\n%s\nbefore:\n%s", now, rules)
	}
	w.expect(pod, "tcp4", at(s, 0, 80), saw(b.pods[0], backend, pod.addrs[0]))
	if err := a.way.open(); err != nil {
		w.Fatal(err)
	}
	w.expect(pod, "tcp4", at(s, 0, 80), saw(b.pods[1], backend, pod.addrs[0]))
	w.result(l)
	w.served(a)
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	select {
	case <-time.After(d):
	case <-w.Context().Done():
	}
}

// rules are the node's, without their counters.
func (w *world) rules(n *node) string {
	w.Helper()
	var kept []string
	for _, line := range lines(w.run(n, "iptables-save")) {
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ":") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

// watchExpired restarts the API server over an etcd that has forgotten where the
// watches were.
func watchExpired(w *world, _ mode) {
	a, b := w.nodes[0], w.nodes[1]
	pod := a.pods[0]
	s := w.service("expired")
	w.endpoints("expired", b.end(0))
	w.expect(pod, "tcp4", at(s, 0, 80), saw(b.pods[0], backend, pod.addrs[0]))
	l := w.underLoad(pod, at(s, 0, 80))
	a.way.cut()
	w.endpoints("expired", b.end(1))
	w.remove("expired-not") // one more revision
	w.api.StopServer()
	w.api.Compact()
	w.api.StartServer()
	if err := a.way.open(); err != nil {
		w.Fatal(err)
	}
	w.expect(pod, "tcp4", at(s, 0, 80), saw(b.pods[1], backend, pod.addrs[0]))
	w.result(l)
	for _, n := range w.nodes {
		w.served(n)
	}
}

// pluginKilled kills the dataplane's process under load.
func pluginKilled(w *world, m mode) {
	a, b := w.nodes[0], w.nodes[1]
	pod := a.pods[0]
	s := w.service("killed")
	w.endpoints("killed", b.end(0))
	w.expect(pod, "tcp4", at(s, 0, 80), saw(b.pods[0], backend, pod.addrs[0]))
	l := w.underLoad(pod, at(s, 0, 80))
	for i := range 3 {
		status, err := a.Status(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		if err := syscall.Kill(status.Dataplane.PID, syscall.SIGKILL); err != nil {
			w.Fatal(err)
		}
		w.until("another process serves", func() error {
			now, err := a.Status(w.Context())
			if err == nil && (now.Dataplane.PID == status.Dataplane.PID || now.Dataplane.Role != "active") {
				err = errors.New("not yet")
			}
			return err
		})
		w.endpoints("killed", b.end((i+1)%2))
		w.expect(pod, "tcp4", at(s, 0, 80), saw(b.pods[(i+1)%2], backend, pod.addrs[0]))
	}
	w.calm(l, m)
}

// calm is result, where the dataplane serves without its process.
func (w *world) calm(l *load, m mode) {
	w.Helper()
	if m.keeps {
		w.result(l)
	}
	l.stop()
}

// hostKilled kills the host, changes what it should serve, and starts it again.
func hostKilled(w *world, m mode) {
	a, b := w.nodes[0], w.nodes[1]
	pod := a.pods[0]
	s := w.service("orphan")
	gone := w.service("gone")
	w.endpoints("orphan", b.end(0))
	w.endpoints("gone", b.end(0))
	for _, s := range []*corev1.Service{s, gone} {
		w.expect(pod, "tcp4", at(s, 0, 80), saw(b.pods[0], backend, pod.addrs[0]))
	}
	l := w.underLoad(pod, at(s, 0, 80))
	w.signal(a, syscall.SIGKILL)
	w.endpoints("orphan", b.end(1))
	w.remove("gone")
	w.expect(pod, "tcp4", at(s, 0, 80), saw(b.pods[0], backend, pod.addrs[0]))
	w.start(a)
	w.expect(pod, "tcp4", at(s, 0, 80), saw(b.pods[1], backend, pod.addrs[0]))
	w.gone(pod, "tcp4", at(gone, 0, 80))
	w.calm(l, m)
}
