// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"cmp"
	"fmt"
	"io/fs"
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
		for _, path := range binaries(dir) {
			name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), Prefix), ".exe")
			if _, ok := found[name]; !ok && modeName.MatchString(name) {
				found[name] = examine(name, path)
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

func binaries(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var paths []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), Prefix) && !e.IsDir() {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths
}

func examine(name, path string) Found {
	f := Found{Name: name, Path: path}
	binary, err := launch.OpenBinary(path, "")
	if err != nil {
		f.Err = fmt.Errorf("%s: %w", path, err)
		return f
	}
	binary.Close()
	return f
}

// An identity tells one content of a file from another, without reading it.
type identity struct {
	Size    int64
	Changed int64 // in nanoseconds since 1970
	Mode    fs.FileMode
}

// file returns the file whose change makes another try worth while; empty: there is none, as of a pipe of Windows,
// which is not asked, since that would connect to it.
func (p Plugin) file() string {
	if p.Address == "" {
		return p.Path
	}
	path, ok := strings.CutPrefix(p.Address, "unix://")
	if !ok {
		return ""
	}
	return path
}

// identify returns the zero identity for a file that is not there.
func identify(path string) identity {
	info, err := os.Stat(path)
	if err != nil {
		return identity{}
	}
	return identity{info.Size(), info.ModTime().UnixNano(), info.Mode()}
}
