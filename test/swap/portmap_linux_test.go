// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/test/traffic"
)

const (
	portmapProgram = "/usr/lib/cni/portmap"
	masqueradeMark = "KUBE-MARK-MASQ" // kube-proxy's chain; portmap leads packets there that must be masqueraded
)

// TestKernelPortmap maps a pod's hostPort with CNI's plugin portmap, configured as distributions of Kubernetes do,
// before, during and after each swap. A mapped port answers all the time, also callers that must be masqueraded.
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
			mapping := func(container string, port uint16) mapping { return mapping{n, tools, container, port} }
			mapping("first", 31001).mapOnce()
			for _, mode := range []string{"userspace", "nftables", "iptables"} { // without a mapped port, which would keep the chain
				n.swapTo(mode)
				n.waitForMode(mode)
				mapping("alone-in-"+mode, 31001).mapOnce()
			}
			lasts := mapping("lasts", 31000)
			lasts.add()
			for _, mode := range []string{"userspace", "nftables", "iptables", "nftables", "userspace", "iptables"} {
				l := n.loadOf(lasts.callers()...)
				ctx, cancel := context.WithCancel(t.Context())
				var others sync.WaitGroup
				others.Go(func() { // ends with ctx
					for i := 0; ctx.Err() == nil; i++ {
						other := mapping(fmt.Sprintf("during-%d", i), 31002)
						if err := errors.Join(other.run("ADD"), other.run("DEL")); err != nil {
							t.Errorf("during the swap to %s: %v", mode, err)
						}
					}
				})
				n.swapTo(mode)
				cancel()
				others.Wait()
				l.done("a mapped port, and a swap to " + mode)
				n.waitForMode(mode)
				mapping("in-"+mode, 31001).mapOnce()
				lasts.answers()
			}
			lasts.delete()
			n.expectMarkChain(backend, mapping("left", 31003))
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
func (m mapping) run(command string) error {
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
		return err
	}
	c := exec.Command(portmapProgram)
	c.Stdin = strings.NewReader(string(config))
	c.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+m.container, "CNI_NETNS=/proc/self/ns/net", "CNI_IFNAME=eth0",
		"CNI_PATH="+filepath.Dir(portmapProgram), "PATH="+m.tools+":"+os.Getenv("PATH"))
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("portmap %s: %w: %s", command, err, out)
	}
	return nil
}

func (m mapping) add() {
	m.Helper()
	if err := m.run("ADD"); err != nil {
		m.Fatal(err)
	}
}

func (m mapping) delete() {
	m.Helper()
	if err := m.run("DEL"); err != nil {
		m.Fatal(err)
	}
}

// mapOnce maps the port, calls it, and removes the mapping.
func (m mapping) mapOnce() {
	m.Helper()
	m.add()
	m.answers()
	m.delete()
}

// callers returns the node at 127.0.0.1, which must be masqueraded, and a client outside.
func (m mapping) callers() []traffic.Caller {
	m.Helper()
	return []traffic.Caller{
		m.caller("node", netip.Addr{}, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), m.port)),
		m.caller("client", client, netip.AddrPortFrom(nodeAddr, m.port)),
	}
}

func (m mapping) answers() {
	m.Helper()
	for _, c := range m.callers() {
		m.until(c.Name+" is answered at "+c.To.String(), func() error { return c.Try(m.Context()) })
	}
}

// expectMarkChain checks that the chain that all modes share stays while a foreign rule jumps to it, and that the next
// cleanup removes it.
func (n *node) expectMarkChain(backend string, left mapping) {
	n.Helper()
	has := func() bool {
		return exec.Command("iptables-"+backend, "-w", "-t", "nat", "-S", masqueradeMark).Run() == nil
	}
	left.add()
	n.end(syscall.SIGINT)
	if out, err := n.verb("cleanup"); err != nil || !strings.Contains(out, "keep nat "+masqueradeMark) || !has() {
		n.Errorf("cleanup beside a mapped port prints %s, %v; KUBE-MARK-MASQ exists: %v", out, err, has())
	}
	left.answers()
	left.delete()
	if out, err := n.verb("cleanup"); err != nil || has() {
		n.Errorf("cleanup prints %s, %v; KUBE-MARK-MASQ exists: %v", out, err, has())
	}
}
