// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/test/traffic"
)

const (
	portmapProgram = "/usr/lib/cni/portmap"
	masqueradeMark = "KUBE-MARK-MASQ" // kube-proxy's chain; portmap leads packets there that must be masqueraded
)

// TestKernelPortmap maps a pod's hostPort with CNI's plugin portmap, configured as distributions of Kubernetes do, and
// another one during each swap. A mapped port answers all the time, also callers that must be masqueraded. The chain that
// portmap and all modes share stays while a rule of portmap jumps to it; the next cleanup removes it.
func TestKernelPortmap(t *testing.T) {
	if _, err := os.Stat(portmapProgram); err != nil {
		t.Skip("needs portmap: apt-get install containernetworking-plugins")
	}
	for _, backend := range []string{"nft", "legacy"} {
		t.Run(backend, func(t *testing.T) {
			n := newNode(t, "iptables")
			n.options = "backend: " + backend
			n.writeMode("iptables")
			n.start()
			tools := t.TempDir()
			for _, program := range []string{"iptables", "ip6tables"} {
				for _, verb := range []string{"", "-save", "-restore"} {
					real, err := exec.LookPath(program + "-" + backend + verb)
					if err != nil {
						t.Skip("needs the backend: ", err)
					}
					if err := os.Symlink(real, filepath.Join(tools, program+verb)); err != nil {
						t.Fatal(err)
					}
				}
			}
			lasts, other := mapping{n, tools, "lasts", 31000}, mapping{n, tools, "other", 31002}
			lasts.run("ADD")
			for _, mode := range []string{"userspace", "nftables", "iptables", "nftables", "userspace", "iptables"} {
				l := n.loadOf(lasts.callers()...)
				n.ask(mode)
				other.run("ADD")
				for _, c := range other.callers() {
					n.until(c.Name+" is answered at "+c.To.String(), func() error { return c.Try(t.Context()) })
				}
				other.run("DEL")
				n.until(mode+" serves", n.serves(mode))
				l.more(50)
				l.done("a mapped port, and a swap to " + mode)
				n.waitForMode(mode)
			}
			has := func() bool {
				return exec.Command("iptables-"+backend, "-w", "-t", "nat", "-S", masqueradeMark).Run() == nil
			}
			n.end(syscall.SIGINT)
			if out, err := n.verb("cleanup"); err != nil || !strings.Contains(out, "keep nat "+masqueradeMark) || !has() {
				t.Errorf("cleanup beside a mapped port prints %s, %v; KUBE-MARK-MASQ exists: %v", out, err, has())
			}
			lasts.run("DEL")
			if out, err := n.verb("cleanup"); err != nil || has() {
				t.Errorf("cleanup prints %s, %v; KUBE-MARK-MASQ exists: %v", out, err, has())
			}
		})
	}
}

// A mapping leads a port of the node to a pod.
type mapping struct {
	*node
	tools     string // a folder in which "iptables" is the one of the backend
	container string // of the pod
	port      uint16
}

// run runs portmap as a container runtime does.
func (m mapping) run(command string) {
	m.Helper()
	type object = map[string]any
	config, err := json.Marshal(object{
		"cniVersion": "0.4.0", "name": "pods", "type": "portmap", "capabilities": object{"portMappings": true},
		"externalSetMarkChain": masqueradeMark, "snat": true,
		"runtimeConfig": object{"portMappings": []object{{"hostPort": m.port, "containerPort": port, "protocol": "tcp"}}},
		"prevResult": object{
			"cniVersion": "0.4.0",
			"interfaces": []object{{"name": "eth0", "sandbox": "/proc/self/ns/net"}},
			"ips":        []object{{"version": "4", "address": backends[0].String() + "/24", "interface": 0}},
		},
	})
	if err != nil {
		m.Fatal(err)
	}
	c := exec.Command(portmapProgram)
	c.Stdin = strings.NewReader(string(config))
	c.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+m.container, "CNI_NETNS=/proc/self/ns/net", "CNI_IFNAME=eth0",
		"CNI_PATH="+filepath.Dir(portmapProgram), "PATH="+m.tools+":"+os.Getenv("PATH"))
	if out, err := c.CombinedOutput(); err != nil {
		m.Fatalf("portmap %s: %v: %s", command, err, out)
	}
}

// callers returns the node at 127.0.0.1, which must be masqueraded, and a client outside.
func (m mapping) callers() []traffic.Caller {
	m.Helper()
	return []traffic.Caller{
		m.caller("node", netip.Addr{}, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), m.port)),
		m.caller("client", client, netip.AddrPortFrom(nodeAddr, m.port)),
	}
}
