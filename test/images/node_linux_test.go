// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/eventually"
	"github.com/pointsman/pointsman/test/traffic"
)

func TestMain(m *testing.M) { netns.Main(m) }

var (
	nodeAddr = netip.MustParseAddr("192.0.2.10")
	service  = netip.MustParseAddrPort("172.30.0.10:8080")
	backends = []netip.AddrPort{netip.MustParseAddrPort("10.244.0.1:8080"), netip.MustParseAddrPort("10.244.1.1:8080")}
	callers  = map[string]netip.Addr{"pod": netip.MustParseAddr("10.244.0.9"), "client": netip.MustParseAddr("198.18.0.7")}
)

// A node runs pods of images by runc. The first one's network is the namespace that the test is in.
type node struct {
	*testing.T
	dir     string // its files, and what runs on it
	testbed *netns.Testbed
	host    *netns.Host    // its network
	to      netip.AddrPort // what its callers call
	pods    int            // that there were
	current *pod           // nil: none

	mu     sync.Mutex // guards what follows
	images map[string]built
}

// newNode is one without a pod.
func newNode(t *testing.T) *node {
	t.Helper()
	folder(t)
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes network namespaces and containers")
	}
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("needs runc: apt-get install runc")
	}
	dir, err := os.MkdirTemp("", "pm-") // short, for sockets' names
	if err != nil {
		t.Fatal(err)
	}
	n := &node{T: t, dir: dir, to: service, images: make(map[string]built)}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // users in containers read what is in it
		t.Fatal(err)
	}
	if n.testbed, err = netns.New(); err != nil {
		t.Fatal(err)
	}
	n.host = n.testbed.Node()
	t.Cleanup(n.close)
	if err := n.testbed.Own(nodeAddr); err != nil { // callers from outside are masqueraded by it
		t.Fatal(err)
	}
	for _, at := range backends {
		n.echo(at)
	}
	return n
}

// close ends what runs on it, and empties its network.
func (n *node) close() {
	if n.current != nil {
		words := n.current
		n.current.evict()
		if n.Failed() {
			n.Log(words.words())
		}
	}
	n.forget()
	if err := n.testbed.Close(); err != nil {
		n.Error(err)
	}
}

func (n *node) path(at string) string { return filepath.Join(n.dir, at) }

func (n *node) runc(words ...string) *exec.Cmd {
	return exec.Command("runc", append([]string{"--root", n.path("runc")}, words...)...)
}

// forget takes from the node what a reboot does: rules, and what is below /run.
func (n *node) forget() {
	n.Helper()
	for _, command := range []string{"nft flush ruleset", "iptables-legacy -t nat -F", "iptables-legacy -t nat -X", "iptables-legacy -F", "iptables-legacy -X",
		"ip6tables-legacy -t nat -F", "ip6tables-legacy -t nat -X", "ip6tables-legacy -F", "ip6tables-legacy -X", "iptables-legacy -t mangle -F", "iptables-legacy -t mangle -X"} {
		_ = exec.Command("sh", "-c", command).Run() // not every kernel has all of them
	}
	if err := os.RemoveAll(n.path("root/run")); err != nil {
		n.Error(err)
	}
}

// unpacked is the folder of an image's files, and what the image says of itself. The next version
// differs in its programs' files alone.
func (n *node) unpacked(name, version string) (string, built) {
	n.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	short := strings.TrimSuffix(strings.TrimPrefix(name, prefix), tag)
	dir := n.path("images/" + short + version)
	if i, ok := n.images[dir]; ok {
		return dir, i
	}
	named, all := open(n, filepath.Join(folder(n), short+".oci.tar")).images(n)
	image, ok := all[runtime.GOARCH]
	if named != name || !ok {
		n.Fatalf("there is no image %s for %s", name, runtime.GOARCH)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		n.Fatal(err)
	}
	for _, layer := range image.layers {
		plain, err := gzip.NewReader(bytes.NewReader(layer))
		if err != nil {
			n.Fatal(err)
		}
		cmd := exec.Command("tar", "-C", dir, "--numeric-owner", "-xpf", "-")
		cmd.Stdin = plain
		if out, err := cmd.CombinedOutput(); err != nil {
			n.Fatalf("tar: %v: %s", err, out)
		}
	}
	// Mounts go where a container runtime would make folders, which it cannot in a read-only image.
	for _, at := range []string{"/proc", "/sys", "/dev", "/etc/pointsman", "/run/pointsman", "/run/pointsman-plugins", "/lib/modules", "/var/run/secrets/kubernetes.io/serviceaccount"} {
		if err := os.MkdirAll(dir+at, 0o755); err != nil {
			n.Fatal(err)
		}
	}
	if err := os.WriteFile(dir+"/run/xtables.lock", nil, 0o644); err != nil {
		n.Fatal(err)
	}
	if version != "" {
		n.alter(dir)
	}
	n.images[dir] = image
	return dir, image
}

// alter has an image's programs be other files, that do the same.
func (n *node) alter(dir string) {
	n.Helper()
	programs, _ := filepath.Glob(dir + "/usr/libexec/pointsman/*")
	for _, p := range append(programs, dir+"/usr/bin/pointsman") {
		f, err := os.OpenFile(p, os.O_APPEND|os.O_WRONLY, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			_, err = f.WriteString("next")
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			n.Fatal(err)
		}
	}
}

// serves waits until the pod's host serves all there is in a mode and its readiness probe says so, and
// returns when its dataplane was started.
func (n *node) serves(mode string) admin.Status {
	n.Helper()
	p := n.current
	host := p.form.container(n, "pointsman")
	for _, m := range host.VolumeMounts {
		if m.MountPath == "/run/pointsman" {
			n := admin.NewClient(filepath.Join(p.volume(m.Name), "pointsman.sock"))
			var s admin.Status
			eventually.SucceedsWithin(p, 3*time.Minute, mode+" serves", func() (err error) {
				if s, err = n.Status(p.Context()); err != nil {
					return fmt.Errorf("%w\n%s", err, p.words())
				}
				if s.Mode != mode || s.Swap != nil || s.Sync.Pending > 0 || s.Sync.Served == 0 || s.Dataplane.Role != "active" {
					return fmt.Errorf("mode %s, swap %+v, sync %+v, dataplane %+v", s.Mode, s.Swap, s.Sync, s.Dataplane)
				}
				return ask(host.ReadinessProbe.HTTPGet)
			})
			return s
		}
	}
	n.Fatalf("container %s has nowhere to listen", host.Name)
	return admin.Status{}
}

// echo answers TCP at an endpoint, with what was said.
func (n *node) echo(at netip.AddrPort) {
	n.Helper()
	host, err := n.testbed.Host(at.Addr())
	if err != nil {
		n.Fatal(err)
	}
	l, err := host.Listen(n.Context(), "tcp4", at)
	if err != nil {
		n.Fatal(err)
	}
	context.AfterFunc(n.Context(), func() { _ = l.Close() })
	go traffic.Echo(l) // ends with the listener
}

// load has a pod and a client call the Service, by new connections and on kept ones.
func (n *node) load() *traffic.Load {
	n.Helper()
	return n.called(nil)
}

// called is load with more callers, whose connections live for a time.
func (n *node) called(lives func() time.Duration, all ...traffic.Caller) *traffic.Load {
	n.Helper()
	for name, from := range callers {
		host, err := n.testbed.Host(from)
		if err != nil {
			n.Fatal(err)
		}
		all = append(all, traffic.From(host, name, from, n.to))
	}
	l := traffic.Start(traffic.Plan{New: 2, Every: 50 * time.Millisecond, Keep: 4, Lives: lives}, all...)
	n.Cleanup(func() { l.End() })
	return l
}

// once runs a container to its end, and returns what it said.
func (n *node) once(id string, spec object) (string, error) {
	n.Helper()
	bundle := n.path("once/" + id)
	text, err := json.Marshal(spec)
	if err == nil {
		err = errors.Join(os.MkdirAll(bundle, 0o755), os.WriteFile(bundle+"/config.json", text, 0o644))
	}
	if err != nil {
		n.Fatal(err)
	}
	out, err := n.runc("run", "--bundle", bundle, id).CombinedOutput()
	return string(out), err
}
