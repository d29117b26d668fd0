// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/phrase"
)

// A kubeProxy is a process of kube-proxy's. Nothing of it is used but what its command line
// and its config file say; its credentials are its own.
type kubeProxy struct {
	pid  int
	ppid int    // its parent
	dir  string // below /proc
	args []string
}

// kubeProxies finds those in this network namespace. A child of one, which is about to run a program such
// as iptables-restore and looks like its parent until then, is none.
func kubeProxies() ([]kubeProxy, error) {
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("look for kube-proxy: %w", err)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for kube-proxy: %w", err)
	}
	var all []kubeProxy
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		p := kubeProxy{pid: pid, dir: filepath.Join("/proc", e.Name())}
		if ns, err := os.Readlink(p.dir + "/ns/net"); err == nil && ns == own && p.is() {
			p.ppid = p.parent()
			all = append(all, p)
		}
	}
	all = parentless(all)
	slices.SortFunc(all, func(a, b kubeProxy) int { return cmp.Compare(a.pid, b.pid) })
	return all, nil
}

// parentless leaves out those whose parent is one of them.
func parentless(all []kubeProxy) []kubeProxy {
	pids := make(map[int]bool, len(all))
	for _, p := range all {
		pids[p.pid] = true
	}
	return slices.DeleteFunc(all, func(p kubeProxy) bool { return pids[p.ppid] })
}

// parent reads which process started it; 0 where that cannot be read. Its own name stands before that
// in parentheses, and may have any character.
func (p *kubeProxy) parent() int {
	text, err := os.ReadFile(p.dir + "/stat")
	if err != nil {
		return 0 // it has ended
	}
	words := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(words) < 2 {
		return 0
	}
	pid, _ := strconv.Atoi(words[1])
	return pid
}

// is reads the command line, and reports whether the process is one of kube-proxy's.
func (p *kubeProxy) is() bool {
	line, err := os.ReadFile(p.dir + "/cmdline")
	if err != nil {
		return false // it has ended
	}
	for _, word := range bytes.Split(bytes.TrimSuffix(line, []byte{0}), []byte{0}) {
		p.args = append(p.args, string(word))
	}
	exe, _ := os.Readlink(p.dir + "/exe")
	for _, name := range []string{strings.TrimSuffix(exe, " (deleted)"), p.args[0]} { // one binary may be several programs
		if filepath.Base(name) == "kube-proxy" {
			return true
		}
	}
	return false
}

// flag returns the value of one of its flags; empty: it was not given.
func (p *kubeProxy) flag(name string) (value string) {
	for i, arg := range p.args {
		if v, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			value = v
		} else if arg == "--"+name && i+1 < len(p.args) {
			value = p.args[i+1]
		}
	}
	return value
}

// inPod reports whether a kubelet runs it.
func (p *kubeProxy) inPod() bool {
	groups, err := os.ReadFile(p.dir + "/cgroup")
	return err == nil && bytes.Contains(groups, []byte("kubepods"))
}

// file returns its config file, as it sees it, and where that is.
func (p *kubeProxy) file() (path string, data []byte, err error) {
	name := p.flag("config")
	if name == "" {
		return "", nil, fmt.Errorf("kube-proxy (pid %d) was started without --config; try: --config FILE, with what kube-proxy --write-config-to=FILE writes by the same flags", p.pid)
	}
	if !filepath.IsAbs(name) {
		dir, err := os.Readlink(p.dir + "/cwd")
		if err != nil {
			return "", nil, fmt.Errorf("read kube-proxy's %s: %w; try: --config FILE", name, err)
		}
		name = filepath.Join(dir, name)
	}
	path = filepath.Join(p.dir, "root", name)
	if data, err = os.ReadFile(path); err != nil {
		return "", nil, fmt.Errorf("%w; try: as root, or --config FILE", err)
	}
	return path, data, nil
}

// theirSettings returns what kube-proxy is set to, by --config or by the file of p.
func theirSettings(c *cobra.Command, p *kubeProxy) (*config.Host, error) {
	if p != nil {
		if name := p.flag("hostname-override"); name != "" && !c.Flags().Changed("hostname-override") {
			if err := c.Flags().Set("hostname-override", name); err != nil {
				return nil, err
			}
		}
	}
	h, err := func() (*config.Host, error) {
		if path, _ := c.Flags().GetString("config"); path != "" {
			return config.Load(path, c.Flags())
		}
		if p == nil {
			return nil, errors.New("no kube-proxy runs in this network namespace; try: on the node itself, where its processes can be seen, or --config FILE with kube-proxy's settings")
		}
		path, data, err := p.file()
		if err != nil {
			return nil, err
		}
		return config.Parse(path, data, c.Flags())
	}()
	if err == nil && h.KubeProxy() == nil {
		err = fmt.Errorf("%s is no KubeProxyConfiguration; try: --config FILE with kube-proxy's settings", h.Path())
	}
	return h, err
}

// theirMode returns the mode in which kube-proxy serves.
func theirMode(h *config.Host) string {
	var said struct{ Mode string }
	if err := json.Unmarshal(h.KubeProxy(), &said); err != nil {
		return h.Mode
	}
	return cmp.Or(said.Mode, "iptables")
}

// processes says which they are.
func processes(all []kubeProxy) string {
	var pids []string
	for _, p := range all {
		pids = append(pids, strconv.Itoa(p.pid))
	}
	return phrase.List(pids)
}
