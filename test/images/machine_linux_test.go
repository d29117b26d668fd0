// SPDX-License-Identifier: Apache-2.0

package images

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/pointsman/pointsman/test/cluster"
)

// A machine is a node as in a cluster: a containerd, a kubelet and what they run, in namespaces of their own except for
// the network, which is the node's. Its files are in the node's folder.
type machine struct {
	*node
	name       string
	addr       netip.Addr
	kubeconfig string
	rope       *os.File // held while it runs
	ended      chan struct{}
}

// machine prepares a machine, which ends with the test.
func (n *node) machine(name string, addr netip.Addr, api *cluster.Cluster, m *mirror) *machine {
	n.Helper()
	v := &machine{node: n, name: name, addr: addr, kubeconfig: api.Kubeconfig(cluster.Token(cluster.Admin), "")}
	for _, dir := range []string{"root/var/lib", "root/var/log", "etc/ghcr.io", "cni"} {
		if err := os.MkdirAll(n.path(dir), 0o755); err != nil {
			n.Fatal(err)
		}
	}
	for file, text := range map[string]string{
		"etc/ghcr.io/hosts.toml": fmt.Sprintf("server = %[1]q\n[host.%[1]q]\n  capabilities = [\"pull\", \"resolve\"]\n", m.url),
		"containerd.toml":        fmt.Sprintf(containerd, n.path("etc"), n.path("cni")),
		"cni/1.conflist":         `{"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "loopback"}]}`,
		"kubelet.yaml":           kubelet,
	} {
		if err := os.WriteFile(n.path(file), []byte(text), 0o644); err != nil {
			n.Fatal(err)
		}
	}
	n.Cleanup(func() {
		v.powerOff()
		removeGroups()
		if n.Failed() {
			for _, log := range []string{"containerd.log", "kubelet.log"} {
				text, _ := os.ReadFile(n.path(log))
				n.Logf("the end of %s:\n%s", log, text[max(0, len(text)-6000):])
			}
		}
	})
	return v
}

// All pods use the node's network, so none has to be set up for others.
const containerd = `version = 3
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = %q
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "ghcr.io/pointsman/pause:latest"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = %q
`

// Nothing in it depends on how much space the machine has left.
const kubelet = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
oomScoreAdj: 0
failSwapOn: false
resolvConf: ""
volumePluginDir: /var/lib/kubelet/plugins
evictionHard: {memory.available: 0%, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%, imagefs.inodesFree: 0%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
`

// boot is process 1 of a machine. The kernel parameters that a kubelet wants belong to the whole machine, so the
// kubelet is told that they are set.
const boot = `cd "$1"
for dir in run var/lib var/log; do mount --bind root/$dir /$dir; done
for pair in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
	at=/proc/sys/${pair%=*}
	[ -e $at ] || continue
	mkdir -p sys/${pair%/*}
	echo ${pair#*=} >sys/${pair%=*}
	mount --bind sys/${pair%=*} $at
done
containerd --config containerd.toml >>containerd.log 2>&1 &
until [ -S /run/containerd/containerd.sock ]; do sleep 0.1; done
kubelet --config=kubelet.yaml --kubeconfig="$2" --hostname-override="$3" --node-ip="$4" >>kubelet.log 2>&1 &
wait
`

// powerOn starts the machine. It ends with this process, and so does all that it runs.
func (v *machine) powerOn() {
	v.Helper()
	bin, err := filepath.Abs("../../bin/nodes")
	if err = errors.Join(err, os.MkdirAll(v.path("root/run"), 0o755)); err != nil {
		v.Fatal(err)
	}
	held, rope, err := os.Pipe()
	if err != nil {
		v.Fatal(err)
	}
	const leash = `"$@" </dev/null 3<&- & child=$!; (read -r _; kill -9 $child) <&3 2>/dev/null & wait $child`
	cmd := exec.Command("sh", "-c", "exec 3<&0; "+leash, "sh", "unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc",
		"sh", "-ec", boot, "sh", v.dir, v.kubeconfig, v.name, v.addr.String())
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	cmd.Stdin = held
	if err := v.host.Do(cmd.Start); err != nil {
		v.Fatal(err)
	}
	held.Close()
	v.rope, v.ended = rope, make(chan struct{})
	ended := v.ended
	go func() { // ends with the machine
		_ = cmd.Wait() // it was killed
		close(ended)
	}()
}

// powerOff ends the machine as a power cut does: none of its processes is left.
func (v *machine) powerOff() {
	if v.rope == nil {
		return
	}
	v.rope.Close()
	v.rope = nil
	<-v.ended
}

// removeGroups removes the control groups that containerd made. A group of another machine, which has processes, stays.
func removeGroups() {
	roots, _ := filepath.Glob("/sys/fs/cgroup/*/k8s.io") // the pattern is valid
	for _, root := range append(roots, "/sys/fs/cgroup/k8s.io") {
		var all []string
		_ = filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				all = append(all, at)
			}
			return nil
		})
		for _, at := range slices.Backward(all) {
			_ = os.Remove(at)
		}
	}
}
