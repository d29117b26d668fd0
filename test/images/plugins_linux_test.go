// SPDX-License-Identifier: Apache-2.0

package images

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pointsman/pointsman/test/eventually"
	"github.com/pointsman/pointsman/test/traffic"
)

// debian are the packages whose files the Python example needs.
const debian = "python3-grpcio python3-protobuf python3-six python3.11-minimal libpython3.11-minimal libpython3.11-stdlib"

// pack writes a layer of an image into the folder $1: the example plugins in Python and in Go, files of this machine's
// Debian for the first, and cp.
const pack = `at=$1/root/usr/libexec/pointsman
mkdir -p $at
cp -r ../../examples/python-relay/. $at
make -s -B -C $at WIRE=$PWD/../../sdk/wire
CGO_ENABLED=0 go build -o $at/pointsman-dataplane-relay ../../sdk/examples/relay
dpkg -L ` + debian + ` | grep -E '^/usr/(bin|lib)/' | while read -r file; do [ -L "$file" ] || [ ! -d "$file" ] && echo "$file"; done >$1/files
ldd $(grep -E '\.so|/python3.11$' $1/files) /bin/cp | grep -o '/[^ ]*' | grep -v :$ >$1/libraries
sort -u $1/files $1/libraries | tar -C / -chf $1/layer --no-recursion -T - /usr/bin/python3 /bin/cp
tar -C $1/root -rf $1/layer --owner=0 --group=0 usr
`

// plugins adds the image of a vendor of two plugins, and returns its digest.
func (m *mirror) plugins(t *testing.T) string {
	t.Helper()
	if err := exec.Command("dpkg", append([]string{"-L"}, strings.Fields(debian)...)...).Run(); err != nil {
		t.Skip("needs gRPC for Python, of Debian 12: apt-get install " + debian)
	}
	for _, program := range []string{"protoc", "grpc_python_plugin", "make"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s; on Debian: apt-get install protobuf-compiler protobuf-compiler-grpc make", program)
		}
	}
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "sh", "-ec", pack, "sh", dir).CombinedOutput()
	layer, missing := os.ReadFile(filepath.Join(dir, "layer"))
	if err := errors.Join(err, missing); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return m.image("acme/relays:v1", layer)
}

// TestKernelKubeletPlugins installs other vendors' dataplanes on a cluster's nodes by the chart alone, from an image
// that is not of this project: in a container of their own, and as children of the host, with the image as a volume or
// a copy. Each node is swapped there and back under load, and no call fails.
func TestKernelKubeletPlugins(t *testing.T) {
	f := newFleet(t, netip.MustParseAddr("192.0.2.11"), netip.MustParseAddr("192.0.2.12"))
	digest := f.mirror.plugins(t)
	var callers []traffic.Caller
	for _, v := range f.all {
		callers = append(callers, traffic.From(v.host, v.name, v.addr, service))
		// Relays listen only on addresses of the node. Its own address stays the first.
		const own = `device=$(ip -o addr show to "$0" | cut -d" " -f2); for to; do ip addr add "$to/32" dev "$device"; done`
		if err := v.host.Do(exec.Command("sh", "-ec", own, v.addr.String(), "10.96.0.1", service.Addr().String()).Run); err != nil {
			t.Fatal(err)
		}
	}
	for _, form := range []struct{ named, plugin, values, at string }{
		{"a container of its own", "pyrelay", "plugins[0].capabilities={NET_BIND_SERVICE}", // for port 443 of Service kubernetes
			"unix:///run/pointsman-pyrelay/socket/plugin.sock"},
		{"an image volume", "relay", "form=children,imageVolumes=true", "/usr/libexec/pointsman-plugins/relay/usr/libexec/pointsman/pointsman-dataplane-relay"},
		{"a copy", "relay", "form=children,imageVolumes=false", "/usr/libexec/pointsman-plugins/relay/pointsman-dataplane-relay"},
	} {
		f.install("config.swap.drainTimeout=1m,plugins[0].name=" + form.plugin + ",plugins[0].image=ghcr.io/acme/relays:v1,plugins[0].digest=" + digest + "," + form.values)
		pods := f.waitForRollout()
		l := f.loadWith(func() time.Duration { return 2 * time.Second }, callers...)
		for _, mode := range []string{form.plugin, "iptables"} {
			for _, p := range pods {
				t.Log(p.Spec.NodeName, f.pointsman(p, "mode", "swap", mode, "--wait"))
				if said := f.pointsman(p, "plugin", "list"); mode == form.plugin && !regexp.MustCompile(`(?m)^`+mode+` +serving .* `+form.at+`$`).MatchString(said) {
					t.Errorf("on %s there are\n%swant %s to serve, at %s", p.Spec.NodeName, said, mode, form.at)
				}
			}
			before := l.Sofar()
			eventually.SucceedsWithin(t, within, mode+" is called", func() error {
				if now := l.Sofar(); now.New < before.New+500 || now.Kept < before.Kept+500 {
					return fmt.Errorf("since the swaps there were %d new connections and %d answers on kept ones", now.New-before.New, now.Kept-before.Kept)
				}
				return nil
			})
		}
		if form.plugin == "pyrelay" {
			f.expectSockets("socket-pyrelay/socket")
			f.run(helm, "upgrade", "pointsman", chart, "--reuse-values", "--set", "mode=pyrelay")
			for _, p := range f.waitForRollout() {
				if said := f.pointsman(p, "mode", "show", "-o", "json"); !strings.Contains(said, `"mode": "pyrelay"`) {
					t.Errorf("on %s: %s", p.Spec.NodeName, said)
				}
			}
		}
		l.Done(t, form.plugin+": "+form.named)
		f.uninstall()
	}
}

// pointsman runs the command line in a pod, and returns its output.
func (f *fleet) pointsman(p corev1.Pod, words ...string) string {
	f.Helper()
	return f.run(kubectl, append([]string{"exec", p.Name, "-c", "pointsman", "--", "/usr/bin/pointsman"}, words...)...)
}

// waitForRollout waits until each node has a healthy pod of the chart's last template, and returns these pods.
func (f *fleet) waitForRollout() []corev1.Pod {
	f.Helper()
	var pods []corev1.Pod
	eventually.SucceedsWithin(f, 3*within, "each node has its pod", func() error {
		var err error
		if pods, err = f.bind(); err != nil {
			return err
		}
		var d *appsv1.DaemonSet
		if d, err = f.kube.AppsV1().DaemonSets("kube-system").Get(f.Context(), "pointsman", metav1.GetOptions{}); err != nil {
			return err
		}
		if n := int32(len(f.all)); d.Status.ObservedGeneration != d.Generation || d.Status.UpdatedNumberScheduled != n || d.Status.NumberReady != n || len(pods) != len(f.all) {
			return fmt.Errorf("%d pods, of %+v", len(pods), d.Status)
		}
		return nil
	})
	for _, p := range pods {
		f.pointsman(p, "status", "--until-well=3m")
	}
	return pods
}
