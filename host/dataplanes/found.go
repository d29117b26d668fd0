// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/sdk/wire"
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

// Describe is a plugin that no host runs, with what its binary says of itself.
func Describe(ctx context.Context, f supervise.Found, sum string) admin.Plugin {
	p := unused(f)
	p.APIVersion, p.Kind = admin.APIVersion, "Plugin"
	if f.Err != nil {
		return p
	}
	var d struct {
		Version          string
		Features, Limits []string
		Options          json.RawMessage
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	data, err := verb(ctx, f.Path, sum, "describe", "-o", "json")
	if err == nil {
		err = json.Unmarshal(data, &d)
	}
	if err != nil {
		p.Why = err.Error()
		return p
	}
	p.Version, p.Features, p.Limits, p.Options = d.Version, d.Features, d.Limits, d.Options
	return p
}

// verb runs a plugin's binary by hand, until ctx ends, and returns what it prints. Like
// the plugin itself it is run only if nobody could have changed it.
func verb(ctx context.Context, path, sum string, words ...string) ([]byte, error) {
	binary, err := wire.OpenBinary(path, sum)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer binary.Close()
	cmd := binary.Command(ctx, words...)
	cmd.WaitDelay = time.Second
	printed, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) && len(exit.Stderr) > 0 {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", path, words[0], err)
	}
	return printed, nil
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
