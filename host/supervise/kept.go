// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/sdk/statefile"
)

// handleFile returns where the way to a plugin's process is written down, for a host
// that comes after this one. There may be a second process for a while, which has
// its own.
func handleFile(stateDir, slot string) string {
	if slot != "" {
		slot = "-" + slot
	}
	return filepath.Join(stateDir, "process"+slot+".json")
}

// A kept handle is what is written down: the way to a process, and of which binary it
// is. By now another one may lie where that was.
type kept struct {
	launch.Handle
	Binary identity
}

// keepHandle writes it, for a host that comes later. Without it that one could not go on
// with the process, and would end it.
func (v *live) keepHandle(p Plugin, binary identity) error {
	data, err := json.Marshal(kept{v.remote.Handle(), binary})
	if err == nil {
		err = statefile.MakeDir(p.StateDir) // it may have been lost with all that is in it
	}
	if err == nil {
		err = statefile.Write(handleFile(p.StateDir, p.Slot), data)
	}
	if err != nil {
		return fmt.Errorf("write down the way to process %d: %w", v.remote.Hello().PID, err)
	}
	return nil
}

// keptHandle reports whether it is still there.
func keptHandle(p Plugin) bool {
	info, err := os.Lstat(handleFile(p.StateDir, p.Slot))
	return err == nil && info.Mode().IsRegular()
}

func forgetHandle(p Plugin) { _ = os.Remove(handleFile(p.StateDir, p.Slot)) } // the process is gone, and the next host sees that

// EndLeftover ends the plugin whose process a host left running, by what it wrote
// into the plugin's state directory for that slot, and returns its pid; zero: there
// was none. With a dry run it only looks. A process that does not show itself to be that
// plugin is left alone, and what was written down is forgotten. It is not for use beside
// the host that runs the plugin.
func EndLeftover(ctx context.Context, stateDir, slot string, dryRun bool) (pid int, err error) {
	h, err := readHandle(stateDir, slot)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err == nil && runs(h.Handle) {
		pid = h.PID
	}
	switch {
	case err != nil:
	case dryRun && pid != 0:
		_, err = h.Shown()
	case !dryRun:
		err = launch.End(ctx, h.Handle) // of a process that is gone it removes the socket
	}
	if errors.Is(err, launch.ErrNotPlugin) {
		pid = 0
	}
	if err != nil {
		err = fmt.Errorf("end the plugin that a former host left running, by %s: %w", handleFile(stateDir, slot), err)
	}
	if dryRun || pid != 0 && err != nil {
		return pid, err
	}
	return pid, errors.Join(err, os.Remove(handleFile(stateDir, slot)))
}

func readHandle(stateDir, slot string) (kept, error) {
	var h kept
	data, err := statefile.Read(handleFile(stateDir, slot))
	if err != nil {
		return h, err
	}
	if err := json.Unmarshal(data, &h); err != nil {
		return h, fmt.Errorf("%s: %w", handleFile(stateDir, slot), err)
	}
	return h, nil
}

// runs reports whether the very process that h names still runs.
func runs(h launch.Handle) bool {
	start, err := launch.StartTime(h.PID)
	return err == nil && start == h.Start
}
