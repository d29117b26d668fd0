// SPDX-License-Identifier: Apache-2.0

package privileges

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/sdk/wire"
	"github.com/pointsman/pointsman/test/built"
	"github.com/pointsman/pointsman/test/eventually"
	"github.com/pointsman/pointsman/test/traffic"
)

func TestMain(m *testing.M) { netns.Main(m) }

// A need has the capabilities that a dataplane needs with some options.
type need struct {
	name    string
	plugin  string
	options string
	caps    []string // of root, and no others
	alone   []string // those of them without which it does not start
}

// needs returns those of the dataplanes of this kernel. The ipvs suite brings a kernel and binaries. A relay's flows
// last longer, since a busy machine is slow. Those with legacy tables come last: the tables stay, and to clean up where
// they exist needs net_raw.
func needs() []need {
	if prebuilt() != "" {
		return []need{{"ipvs-legacy", "ipvs", `{"backend": "legacy"}`, []string{"net_admin", "net_raw"}, []string{"net_admin", "net_raw"}}}
	}
	return []need{
		{"iptables-nft", "iptables", `{"backend": "nft"}`, []string{"net_admin"}, []string{"net_admin"}},
		{"nftables", "nftables", `{}`, []string{"net_admin"}, []string{"net_admin"}},
		{"iptables-legacy", "iptables", `{"backend": "legacy"}`, []string{"net_admin", "net_raw"}, []string{"net_admin", "net_raw"}},
		{"userspace", "userspace", `{"redirect": "always", "udpIdleTimeout": "1m"}`, []string{"net_admin", "net_raw"}, []string{"net_admin"}},
	}
}

// TestKernelLeast tests each dataplane against the contract, with what it needs and no more. Without a soak it runs the
// checks that write to the kernel: packets, deletion of UDP flows, and everything that is left or removed.
func TestKernelLeast(t *testing.T) {
	testbed := newTestbed(t)
	for _, n := range needs() {
		t.Run(n.name, func(t *testing.T) {
			p := n.install(t)
			sdktest.Conform(t, sdktest.Subject{Start: p.start, Stop: p.stop, Options: []byte(n.options), Testbed: testbed, Only: capable})
		})
	}
}

// capable reports whether a check depends on capabilities.
func capable(check string) bool {
	some := `^C(06|09)/|/(node-port-local|external-ip|source-ranges|affinity-udp|hairpin|dual-stack)$`
	if prebuilt() != "" { // on a kernel that is slow
		some = `^C(06/cleanup-leaves-nothing|09/udp-leaves-the-gone|02/scenario/node-port-local)$`
	}
	return regexp.MustCompile(some).MatchString(check)
}

// TestKernelLess removes one capability, and checks that the plugin names it when it fails.
func TestKernelLess(t *testing.T) {
	newTestbed(t)
	for _, n := range needs() {
		p := n.install(t)
		for _, lacks := range n.alone {
			p.caps = slices.DeleteFunc(slices.Clone(n.caps), func(c string) bool { return c == lacks })
			out, err := p.command("check", "--options", n.options).CombinedOutput()
			if err == nil || !strings.Contains(string(out), "this node cannot run it") {
				t.Errorf("%s without %s: %v: %s", n.name, lacks, err, out)
			}
			t.Logf("%s without %s: %s", n.name, lacks, out)
		}
	}
}

func newTestbed(t *testing.T) *netns.Testbed {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes network namespaces, and processes with less than root has")
	}
	return traffic.Testbed(t, netns.New)
}

// A plugin is a binary that listens for itself, with the given capabilities.
type plugin struct {
	binary    string
	dir       string // for its sockets, whose paths must be short
	lives     atomic.Int32
	processes sync.Map // from *wire.Remote to its *os.Process
	caps      []string
}

func (n need) install(t *testing.T) *plugin {
	t.Helper()
	binary := build(t, n.plugin)
	return &plugin{binary: binary, dir: filepath.Dir(binary), caps: n.caps}
}

// prebuilt returns the folder with binaries for a machine that could not build them; empty: here.
func prebuilt() string { return os.Getenv("POINTSMAN_BIN") }

// build puts a plugin's binary into a folder of its own, until the test ends.
func build(t *testing.T, name string) (binary string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "least")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	binary = filepath.Join(dir, "pointsman-dataplane-"+name)
	if prebuilt() != "" {
		err = os.Symlink(filepath.Join(prebuilt(), filepath.Base(binary)), binary)
	} else {
		err = built.Into(dir, "", "./plugins/"+name+"/pointsman-dataplane-"+name)
	}
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// command runs the plugin as root with its capabilities. It cannot get others.
func (p *plugin) command(words ...string) *exec.Cmd {
	bounding := "--bounding-set=-all"
	for _, c := range p.caps {
		bounding += ",+" + c
	}
	return exec.Command("setpriv", append([]string{bounding, "--inh-caps=-all", "--no-new-privs", p.binary}, words...)...)
}

// start starts its next process.
func (p *plugin) start(ctx context.Context, _ string) (sdk.Dataplane, error) {
	address := fmt.Sprintf("unix://%s/%d/s", p.dir, p.lives.Add(1))
	cmd := p.command("--listen", address)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go cmd.Wait() // ends with the process
	target, err := wire.At(address)
	if err != nil {
		return nil, err
	}
	var remote *wire.Remote
	err = eventually.Try(eventually.Timeout, func() (err error) {
		remote, err = wire.Attach(ctx, target)
		return err
	})
	if err != nil {
		_ = cmd.Process.Kill()
		return nil, err
	}
	p.processes.Store(remote, cmd.Process)
	return remote, holds(cmd.Process.Pid, p.caps)
}

func (p *plugin) stop(dp sdk.Dataplane) {
	process, ok := p.processes.LoadAndDelete(dp)
	if !ok {
		return
	}
	remote := dp.(*wire.Remote)
	_ = remote.Shutdown(context.Background())
	select {
	case <-remote.Exited():
	case <-time.After(eventually.Timeout):
	}
	_ = remote.Close()
	_ = process.(*os.Process).Kill() // it has ended, or does not answer
}

// holds returns an error if a process has other capabilities than caps.
func holds(pid int, caps []string) error {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return err
	}
	var want uint64
	for _, c := range caps {
		want |= 1 << map[string]uint{"net_bind_service": 10, "net_admin": 12, "net_raw": 13}[c]
	}
	for _, line := range strings.Split(string(status), "\n") {
		field, value, _ := strings.Cut(line, ":\t")
		if (field == "CapEff" || field == "CapBnd") && value != fmt.Sprintf("%016x", want) {
			return fmt.Errorf("process %d has %s %s, not %016x", pid, field, value, want)
		}
	}
	return nil
}
