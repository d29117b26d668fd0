// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/host/launch"
)

// Prefix is what the name of every plugin's binary begins with.
const Prefix = "pointsman-dataplane-"

// A Found is a plugin's binary.
type Found struct {
	Name string
	Path string
	Err  error // why it cannot be run, where that can be seen at once
}

// Discover looks for plugins: those that named gives a path for, and those in
// dirs, of which the first that has one goes. A directory that is not there is no
// error, and a file is no plugin whose name could be no mode's: whatever it holds, it would
// be shown. The result is sorted by name.
func Discover(dirs []string, named map[string]string) []Found {
	found := make(map[string]Found)
	for name, path := range named {
		if path != "" && ValidName(name) {
			found[name] = examine(name, path)
		}
	}
	for _, dir := range dirs {
		entries, _ := os.ReadDir(dir) // of one that cannot be read there are none
		for _, e := range entries {
			name, ok := strings.CutPrefix(strings.TrimSuffix(e.Name(), ".exe"), Prefix)
			if _, before := found[name]; ok && !before && !e.IsDir() && ValidName(name) {
				found[name] = examine(name, filepath.Join(dir, e.Name()))
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Found) int { return cmp.Compare(a.Name, b.Name) })
}

// modeName is what a mode may be called, as the config file has it.
var modeName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// ValidName reports whether a mode, and its plugin, may be called so. Whatever else stands
// where a mode is expected leads to no file.
func ValidName(name string) bool { return modeName.MatchString(name) }

// ValidSlot reports whether a process of a plugin may be called so.
func ValidSlot(slot string) bool { return slot == "" || ValidName(slot) }

func examine(name, path string) Found {
	binary, err := launch.OpenBinary(path, "")
	if err == nil {
		binary.Close()
	}
	return Found{name, path, err}
}

// Identify returns a text that differs for each content of the file whose change makes another try worth while;
// empty: there is none. A pipe of Windows is not asked, since that would connect to it.
func (p Plugin) Identify() string {
	path, isSocket := strings.CutPrefix(p.Address, "unix://")
	if p.Address == "" {
		path = p.Path
	} else if !isSocket {
		return ""
	}
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprint(info.Size(), info.ModTime().UnixNano(), info.Mode())
}
