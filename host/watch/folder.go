// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A folder is where the manifests are.
type folder struct {
	dir     string
	only    string      // the one file of it that is read; empty: all manifests
	info    os.FileInfo // of dir
	watched bool        // the kernel tells of changes in it
	seen    time.Time   // when it was last looked at
}

// same reports whether f is still the folder that g was.
func (f folder) same(g folder) bool {
	return g.info != nil && f.dir == g.dir && f.only == g.only && os.SameFile(f.info, g.info)
}

// mine reports whether name is that of a file to read.
func (f folder) mine(name string) bool {
	if filepath.Dir(name) != f.dir {
		return false
	}
	if f.only != "" {
		return name == f.only
	}
	return manifest(filepath.Base(name))
}

// A listing is a folder and what is in it.
type listing struct {
	folder
	names   []string
	links   map[string]bool // of names
	partial bool            // only the folder was looked at
	err     error
}

// stat looks at the folder of path alone.
func stat(path string) listing {
	l := listing{partial: true}
	l.dir = path
	if l.info, l.err = os.Stat(path); l.err == nil && !l.info.IsDir() {
		l.dir, l.only = filepath.Dir(path), path
		l.info, l.err = os.Stat(l.dir)
	}
	return l
}

// list has the folder of path watched, and then lists the files that path unchanged for.
func list(path string, n *notifier) listing {
	l := stat(path)
	l.partial = false
	if l.err != nil {
		return l
	}
	l.watched = n.watch(l.dir)
	if l.only != "" {
		l.names = []string{l.only}
		return l
	}
	l.links = make(map[string]bool)
	entries, err := os.ReadDir(path) // sorted
	if l.err = err; err != nil {
		return l
	}
	for _, e := range entries {
		if !manifest(e.Name()) {
			continue
		}
		name := filepath.Join(path, e.Name())
		l.names = append(l.names, name)
		if e.Type()&os.ModeSymlink != 0 {
			l.links[name] = true
		}
	}
	return l
}

func manifest(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}
