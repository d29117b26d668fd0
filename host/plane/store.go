// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/sdk/statefile"
)

const (
	factsFile  = "mode.json" // in the state directory
	pluginDirs = "plugins"   // in the state directory
	choiceFile = "auto.json" // in the data directory, which survives a reboot
)

// ReadFacts returns the facts that the previous host wrote to dir. It returns no facts if there
// is no file, and also with an error.
func ReadFacts(dir string) (f Facts, err error) {
	modes := func() []string {
		all := append([]string{f.Served, f.Asked, f.File}, f.Left...)
		if f.Refused != nil {
			all = append(all, f.Refused.Mode)
		}
		return all
	}
	if err := read(dir, factsFile, &f, modes); err != nil {
		return Facts{}, fmt.Errorf("read which mode serves: %w", err)
	}
	return f, nil
}

// Write writes f to dir so that it survives a crash of the machine. After an error the next host
// may find the previous facts. Write does nothing if the file has the same content, or if f is
// empty and there is no file.
func (f Facts) Write(dir string) error {
	isEmpty := f.Served == "" && f.Asked == "" && len(f.Left) == 0 && f.Refused == nil
	if err := write(dir, factsFile, f, isEmpty); err != nil {
		return fmt.Errorf("write which mode serves: %w", err)
	}
	return nil
}

// PluginDir returns the directory below dir for a plugin's state that outlives the host. It exists from the first launch
// of the plugin until its rules are cleaned up.
func PluginDir(dir, mode string) string { return filepath.Join(dir, pluginDirs, mode) }

// Launched returns the modes that a host has launched and not cleaned up since, as their directories say. It does not
// depend on the facts.
func Launched(dir string) (modes []string) {
	entries, _ := os.ReadDir(filepath.Join(dir, pluginDirs)) // there is none before the first launch
	for _, e := range entries {
		if launch.ValidName(e.Name()) {
			modes = append(modes, e.Name())
		}
	}
	return modes
}

// Forget removes the facts and the plugins' directories from dir, after all modes were cleaned up.
func Forget(dir string) error {
	err := errors.Join(statefile.Remove(filepath.Join(dir, factsFile)), os.RemoveAll(filepath.Join(dir, pluginDirs)))
	if err != nil {
		return fmt.Errorf("remove which mode served: %w", err)
	}
	return nil
}

// A Choice is the mode that "auto" stands for on a node.
type Choice struct {
	Mode string    `json:"mode"` // empty if none was made
	Why  string    `json:"why"`
	At   time.Time `json:"at"`
}

// ReadChoice returns the choice stored in dir. It returns the zero Choice if there is none, and
// also with an error.
func ReadChoice(dir string) (c Choice, err error) {
	if err := read(dir, choiceFile, &c, func() []string { return []string{c.Mode} }); err != nil {
		return Choice{}, fmt.Errorf("read which mode auto stands for: %w", err)
	}
	return c, nil
}

// Write stores the choice in dir, and creates dir if necessary.
func (c Choice) Write(dir string) error {
	if err := write(dir, choiceFile, c, false); err != nil {
		return fmt.Errorf("write which mode auto stands for: %w", err)
	}
	return nil
}

// read reads a file into v, and checks the modes that v names then, because their names become
// parts of paths. If there is no file, v is not changed.
func read(dir, file string, v any, modes func() []string) error {
	path := filepath.Join(dir, file)
	text, err := statefile.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	isBad := func(mode string) bool { return mode != "" && !launch.ValidName(mode) }
	if err == nil && slices.ContainsFunc(modes(), isBad) {
		err = errors.New("invalid name of a mode")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// write replaces a file durably, unless it has the same content, or v is empty and there is no
// file.
func write(dir, file string, v any, isEmpty bool) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, file)
	former, err := statefile.Read(path)
	if err == nil && bytes.Equal(former, text) || errors.Is(err, fs.ErrNotExist) && isEmpty {
		return nil
	}
	if err := statefile.MakeDir(dir); err != nil {
		return err
	}
	return statefile.Write(path, text)
}
