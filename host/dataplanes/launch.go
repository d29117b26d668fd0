// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/sdk/wire"
)

// plugin returns a mode's plugin. Where no binary of it is there, it is one that does
// not come up: the host waits for it, and says so.
func (in installed) plugin(mode, slot string) supervise.Plugin {
	s := in.Now()
	if !supervise.ValidName(mode) || !supervise.ValidSlot(slot) {
		return supervise.Plugin{Name: mode, Slot: slot} // which refuses to be launched
	}
	p := supervise.Plugin{
		Name:      mode,
		Slot:      slot,
		Path:      filepath.Join(in.Begun.PluginDirs[0], supervise.Prefix+mode),
		SHA256:    s.Plugins[mode].SHA256,
		Address:   s.Plugins[mode].Address,
		Options:   s.Plugins[mode].Options,
		StateDir:  stateDir(in.Begun, mode),
		HostDir:   in.Begun.StateDir,
		SocketDir: socketDir(in.Begun.StateDir),
		Env:       []string{wire.LevelEnv + "=" + pluginLevel(in.Begun.Logging.Level)},
	}
	if adj := in.Begun.OOMScoreAdj; adj != 0 && in.spareMe(adj) {
		p.OOMScoreAdj = &adj
	}
	if p.Address != "" {
		return p
	}
	for _, f := range Discover(s) {
		if f.Name == mode {
			p.Path = f.Path
			return p
		}
	}
	in.Reports.Report(report.Event{Warning: true, Reason: report.PluginDown, Object: mode, Message: missing(s, mode)})
	return p
}

// spareMe asks the kernel to spare the host when memory runs out, and reports
// whether it may ask that.
func (in installed) spareMe(adj int) bool {
	err := os.WriteFile("/proc/self/oom_score_adj", fmt.Append(nil, adj), 0)
	if err != nil {
		in.Log.Info("oomScoreAdj is left as it is", "err", err)
	}
	return err == nil
}

// stateDir returns where a plugin keeps what outlives the host.
func stateDir(h *config.Host, name string) string {
	return filepath.Join(h.StateDir, "plugins", name)
}

// socketDir returns below stateDir, unless that is so long that a socket's path would not
// fit: the kernel takes 107 bytes.
func socketDir(stateDir string) string {
	if len(stateDir) > 50 {
		return ""
	}
	return filepath.Join(stateDir, "sockets")
}

// pluginLevel returns a log level as plugins know them.
func pluginLevel(level string) string {
	if level == "trace" {
		return "debug"
	}
	return level
}
