// SPDX-License-Identifier: Apache-2.0

package statefile

import "path/filepath"

// GuardedFile reports which users could change the file at path, which is to be executed, or put
// another one in its place, if so: users other than this process's own, administrators, the system,
// TrustedInstaller, and those that may change program, which executes it. A folder that leads to
// program, too, is not looked at. Where program cannot be looked at, no user may change it.
func GuardedFile(path, program string) error {
	me, err := user()
	if err != nil {
		return err
	}
	has, err := accessOf(program)
	if err != nil {
		has = access{}
	}
	g := newGuard(has, me, waysTo(program))
	for _, way := range ways(path) {
		for _, p := range places(way, leadingTo(way)) {
			if p.what == "folder" && g.passes(p.path) {
				continue
			}
			has, err := accessOf(p.path)
			if err != nil {
				return err
			}
			if err := g.guards(p, has, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// ways are the path, and the one without links, short names and other spellings, if that is another.
func ways(path string) []string {
	if real, err := filepath.EvalSymlinks(path); err == nil && real != path {
		return []string{path, real}
	}
	return []string{path}
}

// waysTo lists the folders of all ways to path.
func waysTo(path string) (dirs []string) {
	for _, way := range ways(path) {
		dirs = append(dirs, leadingTo(way)...)
	}
	return dirs
}

// leadingTo lists the folders that an absolute path goes through, its own first, and its volume last.
func leadingTo(path string) (dirs []string) {
	for at := path; at != filepath.Dir(at); {
		at = filepath.Dir(at)
		dirs = append(dirs, at)
	}
	return dirs
}
