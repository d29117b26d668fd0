// SPDX-License-Identifier: Apache-2.0

// Package portmap runs the portmap plugin of CNI, as a container runtime does for a pod with
// a hostPort, and configured as distributions of Kubernetes do: it leads packets that must be
// masqueraded to kube-proxy's chain KUBE-MARK-MASQ. Suites that swap modes call the port.
package portmap

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pointsman/pointsman/test/traffic"
)

// Program is where distributions install it.
const Program = "/usr/lib/cni/portmap"

// Chain is what it leads packets to that must be masqueraded.
const Chain = "KUBE-MARK-MASQ"

// A Mapping leads a port of the node to one of a pod.
type Mapping struct {
	Container string // its id
	HostPort  uint16
	Pod       netip.AddrPort
	Tools     string // a folder in which "iptables" is what the node's is; empty: as in PATH
}

// Missing says that the program is not there; empty: it is.
func Missing() string {
	if _, err := os.Stat(Program); err != nil {
		return "needs portmap: apt-get install containernetworking-plugins"
	}
	return ""
}

// Tools makes dir a folder in which the programs of iptables write to a backend: "nft" or
// "legacy".
func Tools(dir, backend string) error {
	for _, program := range []string{"iptables", "ip6tables"} {
		for _, verb := range []string{"", "-save", "-restore"} {
			real, err := exec.LookPath(program + "-" + backend + verb)
			if err != nil {
				return err
			}
			if err := os.Symlink(real, filepath.Join(dir, program+verb)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Add maps the port; Delete undoes it.
func (m Mapping) Add(ctx context.Context) error    { return m.run(ctx, "ADD") }
func (m Mapping) Delete(ctx context.Context) error { return m.run(ctx, "DEL") }

func (m Mapping) run(ctx context.Context, command string) error {
	config, err := json.Marshal(m.config())
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, Program)
	c.Stdin = bytes.NewReader(config)
	c.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+m.Container, "CNI_NETNS=/proc/self/ns/net", "CNI_IFNAME=eth0", "CNI_PATH="+filepath.Dir(Program))
	if m.Tools != "" {
		c.Env = append(c.Env, "PATH="+m.Tools+":"+os.Getenv("PATH"))
	}
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("portmap %s: %w: %s", command, err, strings.Join(strings.Fields(string(out)), " "))
	}
	return nil
}

func (m Mapping) config() map[string]any {
	type object = map[string]any
	return object{
		"cniVersion": "0.4.0", "name": "pods", "type": "portmap", "capabilities": object{"portMappings": true},
		"externalSetMarkChain": Chain, "snat": true,
		"runtimeConfig": object{"portMappings": []object{{"hostPort": m.HostPort, "containerPort": m.Pod.Port(), "protocol": "tcp"}}},
		"prevResult": object{
			"cniVersion": "0.4.0",
			"interfaces": []object{{"name": "eth0", "sandbox": "/proc/self/ns/net"}},
			"ips":        []object{{"version": "4", "address": m.Pod.Addr().String() + "/24", "interface": 0}},
		},
	}
}

// During maps and unmaps the ports that other makes, and lets callers call, all the time until
// finish is called: that says how often each was done, and what failed.
func During(ctx context.Context, other func(i int) Mapping, callers []traffic.Caller) (finish func() (done map[string]int, failed []error)) {
	ctx, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	var mu sync.Mutex // guards what follows
	var failed []error
	done := make(map[string]int)
	do := func(what string, f func(ctx context.Context, i int) error) {
		all.Go(func() { // ends with finish
			for i := 0; ctx.Err() == nil; i++ {
				err := f(context.WithoutCancel(ctx), i)
				mu.Lock()
				if done[what]++; err != nil {
					failed = append(failed, fmt.Errorf("%s: %w", what, err))
				}
				mu.Unlock()
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	do("map", func(ctx context.Context, i int) error {
		m := other(i)
		if err := m.Add(ctx); err != nil {
			return err
		}
		return m.Delete(ctx)
	})
	for _, c := range callers {
		do(c.Name, func(ctx context.Context, _ int) error { _, err := c.Once(ctx); return err })
	}
	return func() (map[string]int, []error) {
		stop()
		all.Wait()
		return done, failed
	}
}
