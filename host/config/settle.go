// SPDX-License-Identifier: Apache-2.0

package config

import (
	"maps"
	"path"
	"path/filepath"
	"slices"
)

// settle makes of the layers' values what the host goes by: one source, and
// paths that mean the same wherever the host is started.
func settle(h *Host) Problems {
	problems := h.settleSource()
	h.settlePaths()
	return problems
}

// settleSource keeps the one source that was asked for. The last layer that names
// one decides, so that a flag can turn a cluster's config into a trial with files.
func (h *Host) settleSource() Problems {
	kubernetes := h.layerOf("source.kubernetes", "source.kubernetes.kubeconfig")
	files := h.layerOf("source.files", "source.files.path")
	switch {
	case kubernetes == files && files != Default:
		return Problems{{Where: h.Origin("source"), Field: "source", Why: "names both kubernetes and files", Try: "keep one"}}
	case files > kubernetes:
		h.Source.Kubernetes = nil
	default:
		h.Source.Files = nil
	}
	return nil
}

// layerOf returns the last layer that gives one of the fields at paths.
func (h *Host) layerOf(paths ...string) Layer {
	last := Default
	for _, p := range paths {
		last = max(last, h.from.origins[p].Layer)
	}
	return last
}

// settlePaths makes every path absolute. In a file, a relative one begins at the
// file's own folder: a config and its manifests can be moved together.
func (h *Host) settlePaths() {
	if h.Source.Files != nil {
		h.settlePath("source.files.path", &h.Source.Files.Path)
	}
	if h.Source.Kubernetes != nil {
		h.settlePath("source.kubernetes.kubeconfig", &h.Source.Kubernetes.Kubeconfig)
	}
	h.settlePath("adminSocket", &h.AdminSocket)
	h.settlePath("stateDir", &h.StateDir)
	for i := range h.PluginDirs {
		h.settlePath("pluginDirs", &h.PluginDirs[i])
	}
	for _, name := range pluginNames(h) {
		plugin := h.Plugins[name]
		h.settlePath("plugins."+name+".path", &plugin.Path)
		h.Plugins[name] = plugin
	}
}

func (h *Host) settlePath(field string, p *string) {
	if *p == "" || path.IsAbs(*p) || filepath.IsAbs(*p) {
		return
	}
	if o := h.Origin(field); o.Layer == File {
		*p = filepath.Join(filepath.Dir(o.Name), *p)
	}
	if abs, err := filepath.Abs(*p); err == nil {
		*p = abs
	}
}

func pluginNames(h *Host) []string { return slices.Sorted(maps.Keys(h.Plugins)) }
