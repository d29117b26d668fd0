// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// needsSecond ends a check for which another process has to be there, where none is. Where it is needed,
// the dataplane is not shown to conform.
func (t *trial) needsSecond() {
	if t.subject.Single && t.subject.Second == nil {
		t.fail(notRun{"it needs a second process, and this one runs by itself; run another one at an address of its own, and try: --second ADDRESS"})
	}
}

// needsEnd ends a check for which the process has to end, where it may not.
func (t *trial) needsEnd() {
	if t.subject.Single {
		t.fail(excused{"the process would have to end, and it runs by itself; hold its binary to the contract, too"})
	}
}

// other returns the Subject of a second life.
func (s Subject) other() Subject {
	if s.Second != nil {
		s.Start = s.Second
	}
	return s
}

// planned says why an update that was to be served is only planned, unless it is soon written: the
// lock may be free by now.
func (t *trial) planned(r sdk.Result) error {
	const soon = 3 * time.Second
	if poll(t.ctx, soon, func() error { return t.reports(sdk.LockHeld) }) == nil {
		return nil
	}
	why := "its Report does not say which process has the writer's lock"
	if report, err := t.report(); err == nil && report.Lock != sdk.LockUnused {
		why = fmt.Sprintf("its Report says that the writer's lock is %s", report.Lock)
		if report.Lock == sdk.LockAwaited {
			why += ", and held by " + report.Holder.String()
		}
		if report.Holder.PID == os.Getpid() {
			why += ", which is this process: a life before this one has not released it. Give the dataplane a Close that does, or the Subject a Stop"
		}
	}
	return mismatch{"the update to be served", "it was only planned (Result.Planned); " + why + stepsOf(r)}
}

// stepsOf returns what was planned, as a part of a sentence.
func stepsOf(r sdk.Result) string {
	if len(r.Steps) == 0 {
		return "; Result.Steps names nothing"
	}
	return "; Result.Steps: " + strings.Join(few(r.Steps), "; ")
}

// few returns the first few, and how many more there are.
func few(list []string) []string {
	const most = 3
	if len(list) <= most {
		return list
	}
	return append(append([]string(nil), list[:most]...), fmt.Sprintf("and %d more", len(list)-most))
}

// processName names a process by its pid and by its executable, as far as that can be seen.
func processName(pid int) string {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	exe, _ := os.Readlink(filepath.Join(dir, "exe")) // of other users' processes only root sees it
	comm, _ := os.ReadFile(filepath.Join(dir, "comm"))
	if what := cmp.Or(exe, strings.TrimSpace(string(comm))); what != "" {
		return fmt.Sprintf("pid %d (%s)", pid, what)
	}
	return fmt.Sprintf("pid %d", pid)
}
