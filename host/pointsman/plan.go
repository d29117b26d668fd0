// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/binaries"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/phrase"
)

func planVerb() *cobra.Command {
	var from bool
	c := verb("plan --from-kube-proxy", "Show what Pointsman would take over from the kube-proxy on this node; changes nothing", cobra.NoArgs)
	c.Flags().BoolVar(&from, "from-kube-proxy", false, "from the kube-proxy that runs on this node")
	config.AddFlag(c.Flags(), "mode", "mode", "the dataplane `NAME` that would serve (default kube-proxy's mode)")
	config.AddFlag(c.Flags(), "hostname-override", "hostnameOverride", "this node's `NAME` in Kubernetes (default as kube-proxy has it)")
	return printing(c, func(c *cobra.Command, _ []string) (admin.MovePlan, error) {
		if !from {
			return admin.MovePlan{}, usageError{errors.New("from what? try: pointsman plan --from-kube-proxy")}
		}
		p, err := planMove(c)
		if err == nil && len(p.Settings)+len(p.Notes) > 0 {
			err = errDegraded
		}
		return p, err
	}, writeMovePlan)
}

// planMove returns what would change if Pointsman replaced the kube-proxy on this node.
func planMove(c *cobra.Command) (admin.MovePlan, error) {
	running, err := findKubeProxy()
	if err != nil {
		return admin.MovePlan{}, err
	}
	h, err := kubeProxySettings(c, running)
	if err != nil {
		return admin.MovePlan{}, err
	}
	if _, err := installed(h, h.Mode); err != nil {
		return admin.MovePlan{}, err
	}
	theirs, left := kubeProxyMode(h), binaries.LeftOfKubeProxy(c.Context(), h, h.Mode)
	p := admin.MovePlan{
		Meta: admin.Meta{APIVersion: admin.APIVersion, Kind: "MovePlan"}, Config: h.From.Path, From: theirs, To: h.Mode,
		Settings: append(phrase.Texts(h.From.Warnings), unusedOptions(theirs, h.Mode, h.Plugins[theirs].Options)...),
		Taken:    append([]string{}, left.Taken...), Left: append([]string{}, left.Removable...), Kept: left.Kept, Notes: left.Unknown,
		Back: wayBack(theirs, h.Mode),
	}
	if running != nil {
		p.PID = running.pid
	} else {
		p.Notes = append(p.Notes, "no kube-proxy runs in this network namespace: what it has in the kernel may be older than "+h.From.Path)
	}
	return p, nil
}

func writeMovePlan(w io.Writer, p admin.MovePlan) {
	fmt.Fprintf(w, "kube-proxy %s → %s, by %s\n", p.From, p.To, p.Config)
	writeItems(w, "settings", "all carry over", p.Settings)
	writeItems(w, "taken over", "nothing", firstItems(p.Taken))
	writeItems(w, "left over", "nothing", firstItems(p.Left))
	writeItems(w, "kept", "", p.Kept)
	writeItems(w, "note", "", p.Notes)
	writeItems(w, "way back", "", []string{p.Back})
}

// firstItems returns the first items, and a line with the number of the others.
func firstItems(items []string) []string {
	if len(items) <= shownProblems {
		return items
	}
	return append(slices.Clone(items[:shownProblems]), fmt.Sprintf("and %d more (-o json lists all)", len(items)-shownProblems))
}

// writeItems writes a line for each item, the first with the label. Without items it writes none, if
// that is not empty.
func writeItems(w io.Writer, label, none string, items []string) {
	if len(items) == 0 && none != "" {
		items = []string{none}
	}
	for _, item := range items {
		writeField(w, label, item)
		label = ""
	}
}

// wayBack returns how to return a node to kube-proxy in mode from.
func wayBack(from, to string) string {
	back := "end Pointsman (SIGINT, or systemctl disable --now its units)"
	if to != from {
		back = "pointsman mode swap " + from + "; then " + back
	}
	switch from {
	case "nftables": // kube-proxy has tables of its own
		return back + ", start kube-proxy again, and run pointsman cleanup once its tables exist"
	case "ipvs": // kube-proxy has sets and rules of its own
		return back + ", start kube-proxy again, which takes over the virtual services, and run pointsman-dataplane-ipvs cleanup once its rules exist; do not run pointsman cleanup, which would remove chains that kube-proxy uses too"
	}
	return back + " and start kube-proxy again, which takes over the rules; do not run pointsman cleanup, which would remove them"
}

// unusedOptions returns the settings of kube-proxy's ipvs mode that have no effect in another mode.
// options are the plugin's options for these settings.
func unusedOptions(from, to string, options []byte) (lines []string) {
	var set map[string]any
	if from != "ipvs" || to == from || json.Unmarshal(options, &set) != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if value := fmt.Sprint(set[name]); !slices.Contains([]string{"", "rr", "0s", "false", "[]", "<nil>"}, value) {
			lines = append(lines, fmt.Sprintf("ipvs.%s: no effect in mode %s", name, to))
		}
	}
	return lines
}

// kubeProxySettings returns kube-proxy's settings, from --config or from the file of the running process.
func kubeProxySettings(c *cobra.Command, running *kubeProxy) (h *config.Host, err error) {
	if running != nil && running.hostname != "" && !c.Flags().Changed("hostname-override") {
		_ = c.Flags().Set("hostname-override", running.hostname) // any text is valid
	}
	switch path, _ := c.Flags().GetString("config"); {
	case path != "":
		h, err = config.Load(path, c.Flags())
	case running == nil:
		err = errors.New("no kube-proxy runs in this network namespace; try: on the node itself, where its processes can be seen, or --config FILE with kube-proxy's settings")
	default:
		h, err = running.settings(c.Flags())
	}
	if err == nil && h.From.KubeProxy == nil {
		err = fmt.Errorf("%s is no KubeProxyConfiguration; try: --config FILE with kube-proxy's settings", h.From.Path)
	}
	return h, err
}

// kubeProxyMode returns the mode of kube-proxy.
func kubeProxyMode(h *config.Host) string {
	var own struct{ Mode string }
	_ = json.Unmarshal(h.From.KubeProxy, &own) // it has been loaded
	return cmp.Or(own.Mode, "iptables")
}

// A kubeProxy is a process of kube-proxy. Pointsman reads its command line and its config file, and
// does not use its credentials.
type kubeProxy struct {
	pid              int
	config, hostname string // its flags
}

// findKubeProxy returns the process of kube-proxy in this network namespace with the lowest ID, or nil.
// A child looks like kube-proxy until it executes a program such as iptables-restore, but has a
// higher ID. Some distributions put several programs in one binary, so either the name of the binary
// or the first argument may match.
func findKubeProxy() (found *kubeProxy, err error) {
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("look for kube-proxy: %w", err)
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		ns, _ := os.Readlink(dir + "/ns/net") // or it has ended
		line, _ := os.ReadFile(dir + "/cmdline")
		exe, _ := os.Readlink(dir + "/exe")
		args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
		is := filepath.Base(strings.TrimSuffix(exe, " (deleted)")) == "kube-proxy" || filepath.Base(args[0]) == "kube-proxy"
		if ns != own || !is || found != nil && found.pid < pid {
			continue
		}
		found = &kubeProxy{pid: pid}
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.ParseErrorsAllowlist.UnknownFlags = true
		flags.StringVar(&found.config, "config", "", "")
		flags.StringVar(&found.hostname, "hostname-override", "", "")
		_ = flags.Parse(args[1:]) // kube-proxy has accepted them
	}
	return found, nil
}

// settings returns the settings in the file of p's --config, read in the root directory of p.
func (p *kubeProxy) settings(flags *pflag.FlagSet) (*config.Host, error) {
	if p.config == "" {
		return nil, fmt.Errorf("kube-proxy (pid %d) was started without --config; try: --config FILE, with what kube-proxy --write-config-to=FILE writes by the same flags", p.pid)
	}
	dir := fmt.Sprintf("/proc/%d/", p.pid)
	name := p.config
	if cwd, err := os.Readlink(dir + "cwd"); err == nil && !filepath.IsAbs(name) {
		name = filepath.Join(cwd, name)
	}
	var data []byte
	root, err := os.OpenRoot(dir + "root") // links cannot lead out of it
	if err == nil {
		data, err = root.ReadFile(strings.TrimPrefix(name, "/"))
		_ = root.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("read kube-proxy's %s: %w; try: as root, or --config FILE", name, err)
	}
	return config.Parse(filepath.Join(dir, "root", name), data, flags)
}
