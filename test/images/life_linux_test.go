// SPDX-License-Identifier: Apache-2.0

package images

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/test/eventually"
)

// processes are those of a program in the node's containers, by number.
func (n *node) processes(program string) (all []int) {
	n.Helper()
	own, err := os.Readlink("/proc/thread-self/ns/net") // the first thread may be elsewhere now, with a caller
	if err != nil {
		n.Fatal(err)
	}
	found, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, exe := range found {
		at, _ := os.Readlink(exe)
		net, _ := os.Readlink(filepath.Dir(exe) + "/ns/net")
		var pid int
		if _, err := fmt.Sscanf(exe, "/proc/%d/exe", &pid); err == nil && net == own && strings.HasSuffix(at, "/"+program) {
			all = append(all, pid)
		}
	}
	return all
}

// other waits until a program's processes are none of these.
func (n *node) other(what, program string, before []int) {
	n.Helper()
	eventually.SucceedsWithin(n, 3*time.Minute, what, func() error {
		now := n.processes(program)
		for _, pid := range before {
			for _, p := range now {
				if p == pid {
					return fmt.Errorf("process %d of %s is still there", pid, program)
				}
			}
		}
		if len(now) == 0 {
			return fmt.Errorf("there is no process of %s", program)
		}
		return nil
	})
}

// hang stops a program's processes, and waits until others have taken their place.
func (n *node) hang(mode string) {
	n.Helper()
	program := "pointsman-dataplane-" + mode
	before := n.processes(program)
	if len(before) == 0 {
		n.Fatalf("there is no process of %s", program)
	}
	for _, pid := range before {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			n.Fatal(err)
		}
	}
	n.other("a dataplane that hangs is ended", program, before)
	n.serves(mode)
}

// reboot ends everything, forgets what the kernel had, and begins the pod again.
func (n *node) reboot(f form, mode string) {
	n.Helper()
	n.current.evict()
	n.forget()
	n.begin(f, "next")
	n.serves(mode)
	l := n.load()
	l.More(n, 100)
	l.Done(n, mode+": after a reboot")
}

// TestKernelOneContainer runs the DaemonSet of configs/kubernetes: the host with its dataplane as its child.
// Where rules serve, no call fails while the dataplane hangs, the pod is evicted, and one of the next
// version takes its place.
func TestKernelOneContainer(t *testing.T) {
	for _, mode := range []string{"iptables", "nftables", "userspace"} {
		t.Run(mode, func(t *testing.T) {
			n := newNode(t)
			f := oneContainer(t, mode)
			n.begin(f, "")
			n.serves(mode)
			l := n.load()
			if mode != "userspace" { // whose connections end with its process
				n.hang(mode)
				before := n.processes("pointsman-dataplane-" + mode)
				n.current.evict()
				l.More(n, 200) // rules serve on
				n.begin(f, "next")
				n.other("the next version runs", "pointsman-dataplane-"+mode, before)
				n.serves(mode)
			}
			l.More(n, 100)
			l.Done(n, mode+": hung, evicted and upgraded")
			n.reboot(f, mode)
		})
	}
}

// TestKernelContainerEach runs the DaemonSet of configs/kubernetes-sidecar, with its capabilities, read-only
// file systems and system calls: host and dataplane in containers of their own. One after the other becomes
// one of the next version, and no call fails; nor while the dataplane hangs.
func TestKernelContainerEach(t *testing.T) {
	for _, test := range []struct{ name, mode, options string }{
		{"iptables", "iptables", "{localhostNodePorts: false}"},
		{"iptables-legacy", "iptables", "{localhostNodePorts: false, backend: legacy}"},
		{"nftables", "nftables", "{}"},
		{"userspace", "userspace", "{}"},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := newNode(t)
			f := containerEach(t, test.mode, test.options)
			n.begin(f, "")
			n.serves(test.mode)
			l := n.load()
			if test.mode != "userspace" {
				for container, program := range map[string]string{test.mode: "pointsman-dataplane-" + test.mode, "pointsman": "pointsman"} {
					before := n.processes(program)
					n.current.replace(container, "next")
					n.other(container+" is replaced", program, before)
					n.serves(test.mode)
				}
				n.hang(test.mode)
			}
			l.More(n, 100)
			l.Done(n, test.name+": each upgraded, and hung")
			n.reboot(f, test.mode)
		})
	}
}

// TestKernelAfterPrivileged: a dataplane in a container of its own follows a privileged one, whose kernel
// parameters it cannot give back. It serves.
func TestKernelAfterPrivileged(t *testing.T) {
	const parameter = "/proc/sys/net/ipv4/conf/all/route_localnet"
	n := newNode(t)
	if err := os.WriteFile(parameter, []byte("0"), 0o644); err != nil { // as before any other test
		t.Fatal(err)
	}
	n.begin(oneContainer(t, "iptables"), "")
	n.serves("iptables")
	if value, err := os.ReadFile(parameter); err != nil || string(value) != "1\n" {
		t.Errorf("the privileged one has set route_localnet to %q, %v", value, err)
	}
	l := n.load()
	n.current.evict()
	p := n.begin(containerEach(t, "iptables", "{localhostNodePorts: false}"), "")
	n.serves("iptables")
	l.Done(n, "the other form took over")
	eventually.Succeeds(t, "it says that a parameter stays", func() error {
		if said := p.words(); !strings.Contains(said, "cannot give back kernel parameters") {
			return fmt.Errorf("it says:\n%s", said)
		}
		return nil
	})
}

// TestKernelWithoutIPVS: where the kernel has no IPVS, the image of its dataplane says so.
func TestKernelWithoutIPVS(t *testing.T) {
	if _, err := os.Stat("/proc/sys/net/ipv4/vs"); err == nil {
		t.Skip("this kernel has IPVS")
	}
	n := newNode(t)
	f := containerEach(t, "ipvs", "{}")
	p := &pod{node: n, form: f, dir: n.path("pods/0")}
	for _, v := range f.pod.Volumes {
		p.provide(v)
	}
	c := f.container(t, "ipvs")
	c.Args = []string{"check"}
	root, image := n.unpacked(c.Image, "")
	said, err := n.once("check", p.spec(c, image, root))
	if err == nil || !strings.Contains(said, "IPVS") {
		t.Errorf("it says %q, %v", said, err)
	}
	t.Log(said)
}
