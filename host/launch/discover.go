// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Prefix is the prefix of the names of all plugin binaries.
const Prefix = "pointsman-dataplane-"

// A Found is a plugin's binary.
type Found struct {
	Name string
	Path string
	Err  error // why it cannot run; nil if the file shows no reason
}

// Discover finds plugins: those for which named has a path, and those in dirs, where the first directory with a plugin
// wins. It ignores missing directories, and files whose name is not a valid mode, so that the output of verbs contains
// no arbitrary text. The result is sorted by name.
func Discover(dirs []string, named map[string]string) []Found {
	found := make(map[string]Found)
	for name, path := range named {
		if path != "" && ValidName(name) {
			found[name] = checkBinary(name, path)
		}
	}
	for _, dir := range dirs {
		entries, _ := os.ReadDir(dir) // an unreadable directory has no plugins
		for _, e := range entries {
			name, ok := strings.CutPrefix(strings.TrimSuffix(e.Name(), ".exe"), Prefix)
			if _, before := found[name]; ok && !before && !e.IsDir() && ValidName(name) {
				found[name] = checkBinary(name, filepath.Join(dir, e.Name()))
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Found) int { return cmp.Compare(a.Name, b.Name) })
}

// modeName matches valid names of modes, as in the config file.
var modeName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// ValidName reports whether name is a valid name of a mode and its plugin. Names are parts of
// paths, so no other string must be used where a mode is expected.
func ValidName(name string) bool { return modeName.MatchString(name) }

func checkBinary(name, path string) Found {
	binary, err := OpenBinary(path, "")
	if err == nil {
		binary.Close()
	}
	return Found{name, path, err}
}

// Identify returns a string that is different after the plugin's file or socket was replaced or changed, so that a
// failed start is worth a retry. It returns "" if there is no file, and for a Windows pipe, because a check would
// connect to it.
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
