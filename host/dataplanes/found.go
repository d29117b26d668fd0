// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

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

// installed is the plugins of this machine, by a host's settings.
type installed struct{ Settings }

// available reports whether a mode has a plugin: a binary, or an address.
func (in installed) available(mode string) bool {
	if in.Now().Plugins[mode].Address != "" {
		return true // whether something listens there shows when it is connected to
	}
	return slices.ContainsFunc(Discover(in.Begun), func(f supervise.Found) bool { return f.Name == mode && f.Err == nil })
}

// found returns the binary of a mode. One that runs by itself may have none here.
func (in installed) found(mode string) supervise.Found {
	for _, f := range Discover(in.Now()) {
		if f.Name == mode {
			return f
		}
	}
	return supervise.Found{Name: mode, Err: fmt.Errorf("%s runs by itself, and its binary is not here", mode)}
}

// unfit returns why this node cannot run a mode's plugin, by the plugin's own word; none: it can,
// or it is not for this host to ask.
func (in installed) unfit(ctx context.Context, mode string) []string {
	s := in.Now().Plugins[mode]
	if s.Address != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	why, err := refuses(ctx, in.found(mode).Path, s.SHA256, s.Options)
	switch {
	case errors.Is(err, errNoAnswer):
		return nil // it is asked once more as the change begins
	case err != nil:
		why = err.Error()
	case why == "":
		return nil
	}
	return []string{oneLine(why)}
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

// unused returns a plugin that no host runs.
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
