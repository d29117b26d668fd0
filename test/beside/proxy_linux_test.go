// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/test/apart"
	"github.com/pointsman/pointsman/test/cluster"
)

const kubeProxy = "../../bin/peers/kube-proxy"

// A kind is a kind of proxy: kube-proxy or ours, in a mode, with one of iptables' backends.
type kind struct {
	label   string
	ours    bool
	mode    string
	backend string
	apart   bool // the host is an ordinary user, and the plugin is not its child
}

func (k kind) String() string { return k.label }

var (
	theirNft      = kind{"kube-proxy iptables-nft", false, "iptables", "nft", false}
	theirLegacy   = kind{"kube-proxy iptables-legacy", false, "iptables", "legacy", false}
	theirNftables = kind{"kube-proxy nftables", false, "nftables", "nft", false}
	ourNft        = kind{"iptables-nft", true, "iptables", "nft", true}
	ourLegacy     = kind{"iptables-legacy", true, "iptables", "legacy", apart.Asked()}
	ourUserspace  = kind{"userspace", true, "userspace", "nft", true} // a launched relay ends with its host
	ourNftables   = kind{"nftables", true, "nftables", "nft", apart.Asked()}
	ourSockets    = kind{"userspace-legacy", true, "userspace", "legacy", apart.Asked()}
)

const common = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %s
clientConnection: {kubeconfig: %q}
hostnameOverride: ` + here + `
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
oomScoreAdj: 0
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
iptables: {minSyncPeriod: 50ms, syncPeriod: 2s}
nftables: {minSyncPeriod: 50ms, syncPeriod: 2s}
ipvs: {minSyncPeriod: 50ms, syncPeriod: 2s}
nodePortAddresses: [%s]
clusterCIDR: 10.244.0.0/16,fd00:10:244::/48
`

// A proxy runs in a world of its own.
type proxy struct {
	kind
	*world
	*admin.Client // of our host
	dir           string
	kubeconfig    string
	disconnect    func() // cuts the connection to the API server
	log           string
	process       *os.Process
	ended         chan struct{}
	kept          *apart.Keeper // the plugin, if the host runs apart
}

// newProxy returns a proxy that does not run yet, whose token for the API server is token.
func newProxy(t testing.TB, k kind, api *cluster.Cluster, token string) *proxy {
	t.Helper()
	dir, err := os.MkdirTemp("", "beside-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(filepath.Join(dir, "own"), 0o755)); err != nil {
		t.Fatal(err)
	}
	p := &proxy{kind: k, world: newWorld(t), dir: dir, log: filepath.Join(dir, "log")}
	p.Client = admin.NewClient(filepath.Join(dir, "own", "admin.sock"))
	p.plainNames(t)
	p.hint(t)
	p.connect(t, api)
	t.Cleanup(func() { p.disconnect() })
	kubeconfig, err := os.ReadFile(api.Kubeconfig(token, "https://127.0.0.1:6443"))
	p.kubeconfig = filepath.Join(dir, "kubeconfig")
	if err := errors.Join(err, os.WriteFile(p.kubeconfig, kubeconfig, 0o600)); err != nil {
		t.Fatal(err)
	}
	return p
}

// connect connects the node's loopback with the API server, until disconnect.
func (p *proxy) connect(t testing.TB, api *cluster.Cluster) {
	t.Helper()
	err := p.hosts["node"].Do(func() error {
		l, err := net.Listen("tcp4", "127.0.0.1:6443")
		if err == nil {
			p.disconnect = api.Forward(l)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// plainNames creates a folder where the programs of the backend have their plain names.
func (p *proxy) plainNames(t testing.TB) {
	t.Helper()
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, verb := range []string{"", "-save", "-restore"} {
			real, err := exec.LookPath(family + "-" + p.backend + verb)
			if err == nil {
				err = os.Symlink(real, filepath.Join(p.dir, family+verb))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// hint creates the chain that a kubelet creates, which tells the backend of the node.
func (p *proxy) hint(t testing.TB) {
	t.Helper()
	for _, family := range []string{"iptables", "ip6tables"} {
		p.run(t, family, "-t", "mangle", "-N", "KUBE-IPTABLES-HINT")
	}
}

// run runs a program on the node, and returns its output.
func (p *proxy) run(t testing.TB, name string, args ...string) string {
	t.Helper()
	var out []byte
	err := p.hosts["node"].Do(func() (err error) {
		cmd := exec.Command(name, args...)
		if plain := filepath.Join(p.dir, name); exists(plain) {
			cmd.Path = plain
			cmd.Err = nil
		}
		cmd.Env = p.environ()
		out, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return string(out)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (p *proxy) environ() []string {
	return append(os.Environ(), "PATH="+p.dir+":"+os.Getenv("PATH"), "XTABLES_LOCKFILE="+filepath.Join(p.dir, "xtables.lock"))
}

// start starts the process.
func (p *proxy) start(t testing.TB, nodePortAddresses ...string) {
	t.Helper()
	file := filepath.Join(p.dir, "config.yaml")
	ports := ""
	if len(nodePortAddresses) > 0 {
		ports = `"` + strings.Join(nodePortAddresses, `", "`) + `"`
	}
	text := fmt.Sprintf(common, p.mode, p.kubeconfig, ports)
	if p.mode == "userspace" { // a busy machine may take longer to answer than the default
		text += "udpIdleTimeout: 5s\n"
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(kubeProxy, "--config="+file, "--v=2")
	if p.ours {
		cmd = p.host(t, "run", "--config="+file, "--plugin-dir="+cluster.Binaries,
			"--state-dir="+filepath.Join(p.dir, "own", "state"), "--admin-socket="+filepath.Join(p.dir, "own", "admin.sock"))
	}
	cmd.Env = append(p.environ(), cmd.Env...)
	p.launch(t, cmd)
	t.Cleanup(func() { p.stop() })
}

// host returns our host's command with these arguments. If the host runs apart its plugin runs already.
func (p *proxy) host(t testing.TB, words ...string) *exec.Cmd {
	t.Helper()
	binary := filepath.Join(cluster.Binaries, "pointsman")
	if !p.apart {
		return exec.Command(binary, words...)
	}
	if err := apart.Give(filepath.Join(p.dir, "own"), p.kubeconfig); err != nil {
		t.Fatal(err)
	}
	plugin := apart.Plugin{Name: p.mode, Binary: filepath.Join(cluster.Binaries, "pointsman-dataplane-"+p.mode), Socket: filepath.Join(p.dir, "plugin", "s"), Legacy: p.backend == "legacy", Env: p.environ()}
	if p.kept == nil { // else it outlived the last host
		kept, err := apart.Keep(plugin, func(cmd *exec.Cmd) (<-chan struct{}, error) { return p.begin(cmd) })
		if err != nil {
			t.Fatalf("%v; its last words:\n%s", err, p.lastOutput())
		}
		p.kept = kept
	}
	cmd := apart.Host(binary, words...)
	cmd.Env = []string{fmt.Sprintf("POINTSMAN_PLUGINS_%s_ADDRESS=%s", strings.ToUpper(p.mode), plugin.Address())}
	return cmd
}

func (p *proxy) launch(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	ended, err := p.begin(cmd)
	if err != nil {
		t.Fatal(err)
	}
	p.process, p.ended = cmd.Process, ended
}

// begin starts a process on the node.
func (p *proxy) begin(cmd *exec.Cmd) (chan struct{}, error) {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if cmd.Stdout == nil {
		cmd.Stdout, cmd.Stderr = log, log
	}
	// The thread that starts it lives as long as the process, because the kernel sends the process a signal when the
	// thread ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error, 1), make(chan struct{})
	go func() { // ends with the process
		defer close(ended)
		_ = p.hosts["node"].Do(func() error {
			err := cmd.Start()
			started <- err
			if err == nil {
				_ = cmd.Wait() // it ends by a signal
			}
			return err
		})
	}()
	return ended, <-started
}

// stop ends the process and what it started; its rules stay.
func (p *proxy) stop() {
	if p.process == nil {
		return
	}
	_ = p.process.Signal(syscall.SIGINT)
	select {
	case <-p.ended:
	case <-time.After(20 * time.Second):
		_ = p.process.Kill()
		<-p.ended
	}
	p.process = nil
	if p.kept != nil {
		_ = p.kept.Stop() // a plugin that could not be started again was reported by then
		p.kept = nil
	}
}

// lastOutput returns the last output of the process.
func (p *proxy) lastOutput() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-4096):])
}
