// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/supervise"
)

// This file is about the plugins of this machine, whether they run or not.

// Discover looks for plugins where the settings say, and beside this binary.
func Discover(h *config.Host) []supervise.Found {
	named := make(map[string]string)
	for name, p := range h.Plugins {
		named[name] = p.Path
	}
	dirs := h.PluginDirs
	if self, err := os.Executable(); err == nil {
		dirs = append(dirs[:len(dirs):len(dirs)], filepath.Dir(self))
	}
	return supervise.Discover(dirs, named)
}

// missing says that there is no binary for the mode, and what there is.
func missing(h *config.Host, mode string) string {
	text := fmt.Sprintf("there is no %s%s in %s", supervise.Prefix, mode, phrase.List(h.PluginDirs))
	var names []string
	for _, f := range Discover(h) {
		names = append(names, f.Name)
	}
	if len(names) > 0 {
		return text + "; found for other modes: " + phrase.List(names)
	}
	return text + "; try: --plugin-dir DIR"
}

// unused is a plugin that no host runs.
func unused(f supervise.Found) admin.Plugin {
	p := admin.Plugin{Name: f.Name, Path: f.Path, State: "unused"}
	if f.Err != nil {
		p.Why = f.Err.Error()
	}
	return p
}

// EndLeftovers ends the processes of a mode that a host left running, or with dryRun
// says which it would end; 0: there is none.
func EndLeftovers(ctx context.Context, h *config.Host, mode string, dryRun bool) (pid int, err error) {
	for _, slot := range []string{"", otherSlot("")} {
		left, failed := supervise.EndLeftover(ctx, stateDir(h, mode), slot, dryRun)
		pid, err = cmp.Or(pid, left), errors.Join(err, failed)
	}
	return pid, err
}
