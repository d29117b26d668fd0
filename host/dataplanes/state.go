// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/sdk/statefile"
)

// This file sees to it that what the next host must know is on the disk.

// stateGap is between two looks at it.
const stateGap = time.Second

// keepState writes down again what could not be written, or was lost, until ctx ends.
func (set *Set) keepState(ctx context.Context) {
	ticker := time.NewTicker(stateGap)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			set.notWritten(set.writeState())
		}
	}
}

// writeState writes what differs from what is on the disk, and returns what it could not
// write.
func (set *Set) writeState() (unwritten []string) {
	add := func(err error) {
		if err != nil {
			unwritten = append(unwritten, err.Error())
		}
	}
	add(set.inForce().rewrite(set.Begun.StateDir))
	add(set.runner.Unwritten())
	for _, p := range set.all() {
		if why := p.supervisor.Status().Unwritten; why != "" {
			add(fmt.Errorf("dataplane %s: %s", p.name, why))
		}
	}
	return unwritten
}

func (set *Set) inForce() inForce {
	set.mu.Lock()
	defer set.mu.Unlock()
	return set.noted
}

// rewrite writes f, unless it is there, or there is nothing to say.
func (f inForce) rewrite(stateDir string) error {
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if nothing, _ := json.Marshal(inForce{}); bytes.Equal(data, nothing) {
		return nil
	}
	if there, err := statefile.Read(inForceFile(stateDir)); err == nil && bytes.Equal(there, data) {
		return nil
	}
	return errors.Join(os.MkdirAll(stateDir, 0o700), f.write(stateDir))
}

// notWritten notes what could not be written, and tells of it when that changes.
func (set *Set) notWritten(unwritten []string) {
	set.mu.Lock()
	before := set.unwritten
	set.unwritten = unwritten
	set.mu.Unlock()
	for _, why := range unwritten {
		if !slices.Contains(before, why) {
			set.Reports.Report(report.Event{Warning: true, Reason: report.StateNotWritten, Message: why})
		}
	}
	if len(unwritten) == 0 && len(before) > 0 {
		set.Reports.Report(report.Event{Reason: report.StateWritten, Message: "all that the next host must know is written down"})
	}
}

// Unwritten is what the next host must know and could not be written down.
func (set *Set) Unwritten() []string {
	set.mu.Lock()
	defer set.mu.Unlock()
	return slices.Clone(set.unwritten)
}

// remembered is what a host before wrote down of the mode.
func (set *Set) remembered() inForce {
	f, err := readInForce(set.Begun.StateDir)
	if err != nil {
		set.Reports.Report(report.Event{Warning: true, Reason: report.StateNotUsed, Message: err.Error() + "; the host begins without it"})
	}
	return f
}
