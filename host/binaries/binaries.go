// SPDX-License-Identifier: Apache-2.0

/*
Package binaries finds the plugins that are installed on this machine, and asks their binaries what they are, whether
they can run here, and what they would clean up. It works without a running host, and changes nothing, except that Run
may run a verb that does. Start reading at Discover.
*/
package binaries

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/phrase"
)

// Discover finds the plugins in the places that the settings name and in the directory of this
// binary.
func Discover(h *config.Host) []launch.Found {
	named := make(map[string]string)
	for name, p := range h.Plugins {
		named[name] = p.Path
	}
	return launch.Discover(Dirs(h), named)
}

// Dirs returns the directories in which Discover looks for plugins.
func Dirs(h *config.Host) []string {
	self, _ := os.Executable() // the host was started from it
	return append(slices.Clone(h.PluginDirs), filepath.Dir(self))
}

// Missing explains why the mode has no usable binary, and lists the other modes that have one.
func Missing(h *config.Host, mode string) string {
	text := fmt.Sprintf("there is no %s%s in %s", launch.Prefix, mode, phrase.List(h.PluginDirs))
	var others []string
	for _, f := range Discover(h) {
		switch {
		case f.Name == mode && f.Err != nil:
			text = f.Err.Error()
		case f.Err == nil:
			others = append(others, f.Name)
		}
	}
	if len(others) == 0 {
		return text
	}
	return text + "; found for other modes: " + phrase.List(others)
}

// Unused returns the status of a plugin that no host runs.
func Unused(f launch.Found) admin.Plugin {
	p := admin.Plugin{Name: f.Name, Path: f.Path, State: "unused"}
	if f.Err != nil {
		p.Why = f.Err.Error()
	}
	return p
}

// UnknownPlugin returns the error for a plugin that does not exist, with the names of those
// that do.
func UnknownPlugin(name string, there []string) *admin.Error {
	e := admin.UnknownPlugin(name)
	if len(there) > 0 {
		e.What, e.Why = e.What+" in pluginDirs", "there is "+phrase.List(there)
	}
	return e
}
