// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/windows"
)

func executable(string, os.FileInfo) error { return nil }

func unstarted(_ string, err error) error { return err }

// guardedWell has nothing to say: who may change the binary is the administrator's to see to.
func guardedWell(string, os.FileInfo) error { return nil }

// separate gives a plugin a process group of its own, so that Ctrl-C and Ctrl-Break at the
// host's console do not reach it.
func separate() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP, HideWindow: true}
}

// StartTime returns when process pid started, in 100 ns since 1601. With the pid it names a
// process for good. The error is os.ErrProcessDone when there is no such process.
func StartTime(pid int) (uint64, error) {
	handle, err := open(pid)
	if err != nil {
		return 0, err
	}
	defer windows.CloseHandle(handle)
	return startOf(handle)
}

// open opens a process that has not ended. While it is open, no other one gets its pid.
func open(pid int) (windows.Handle, error) {
	const access = windows.SYNCHRONIZE | windows.PROCESS_TERMINATE | windows.PROCESS_QUERY_LIMITED_INFORMATION
	handle, err := windows.OpenProcess(access, false, uint32(pid))
	if errors.Is(err, windows.ERROR_INVALID_PARAMETER) {
		return 0, fmt.Errorf("process %d: %w", pid, os.ErrProcessDone)
	}
	if err != nil {
		return 0, fmt.Errorf("open process %d: %w", pid, err)
	}
	if ended, err := windows.WaitForSingleObject(handle, 0); err == nil && ended == windows.WAIT_OBJECT_0 {
		_ = windows.CloseHandle(handle)
		return 0, fmt.Errorf("process %d: %w", pid, os.ErrProcessDone)
	}
	return handle, nil
}

func startOf(process windows.Handle) (uint64, error) {
	var created, exited, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(process, &created, &exited, &kernel, &user); err != nil {
		return 0, fmt.Errorf("ask when a process started: %w", err)
	}
	return uint64(created.HighDateTime)<<32 | uint64(created.LowDateTime), nil
}

// watch watches a process that is no child, by a handle: it cannot be mistaken for another
// that gets the same pid.
func watch(pid int, start uint64) (*process, error) {
	handle, err := open(pid)
	if err != nil {
		return nil, err
	}
	now, err := startOf(handle)
	if err == nil && start != 0 && now != start {
		err = fmt.Errorf("process %d is another one now: %w", pid, os.ErrProcessDone)
	}
	h := &handles{process: handle}
	if err == nil {
		h.stop, err = windows.CreateEvent(nil, 1, 0, nil)
	}
	if err != nil {
		_ = windows.CloseHandle(handle)
		return nil, err
	}
	p := newProcess(pid)
	p.start = now
	p.signal, p.forget = h.end, h.forget
	go h.follow(p.end)
	return p, nil
}

// handles are those by which a process is watched, until it has ended or is forgotten.
type handles struct {
	process, stop windows.Handle

	mu     sync.Mutex // guards closed, and both handles from being closed while they are used
	closed bool
}

// end ends the process, if that is what sig means. The others have no counterpart here: a
// plugin is asked over its connection before.
func (h *handles) end(sig os.Signal) error {
	if sig != os.Kill {
		return fmt.Errorf("there is no signal %s on Windows", sig)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return os.ErrProcessDone
	}
	return windows.TerminateProcess(h.process, 1)
}

// forget has follow end.
func (h *handles) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		_ = windows.SetEvent(h.stop) // it fails only for a handle that is none
	}
}

// follow calls ended when the process has, and ends then, or with forget.
func (h *handles) follow(ended func(Exit)) {
	which, err := windows.WaitForMultipleObjects([]windows.Handle{h.process, h.stop}, false, windows.INFINITE)
	exit := Exit{Code: -1}
	var code uint32
	if windows.GetExitCodeProcess(h.process, &code) == nil {
		exit.Code = int(code)
	}
	h.mu.Lock()
	h.closed = true
	_, _ = windows.CloseHandle(h.process), windows.CloseHandle(h.stop)
	h.mu.Unlock()
	if err == nil && which == windows.WAIT_OBJECT_0 {
		ended(exit)
	}
}

// oomScore has nothing to do: Windows has no score for when memory runs out.
func oomScore(int, int) error { return nil }

// NetNS is empty here: only Linux has network namespaces.
func NetNS() (string, error) { return "", nil }

// FindMarked finds none here: Windows shows no process's environment to another. A plugin that
// a former host left is found by its Handle.
func FindMarked() ([]Marked, error) { return nil, nil }

// SeesDir is false here.
func (m Marked) SeesDir(string) bool { return false }

// End ends nothing here: there is none to end.
func (m Marked) End(context.Context) error { return ErrNotPlugin }

// traits returns the file that the process executes.
func traits(pid int) (netns, exe string) {
	handle, err := open(pid)
	if err != nil {
		return "", ""
	}
	defer windows.CloseHandle(handle)
	name := make([]uint16, windows.MAX_LONG_PATH)
	size := uint32(len(name))
	if windows.QueryFullProcessImageName(handle, 0, &name[0], &size) != nil {
		return "", ""
	}
	return "", windows.UTF16ToString(name[:size])
}

// shows reports why process p is not shown to be the plugin that h names, if so: by when it
// started, and by the file that it executes. No two processes of one pid have the same start.
func (h Handle) shows(p *process) error {
	switch _, exe := traits(p.pid); {
	case p.gone():
		return os.ErrProcessDone
	case h.Start == 0 || h.Start != p.start:
		return fmt.Errorf("it started at another time than was written down: %w", ErrNotPlugin)
	case exe != h.Exe:
		return fmt.Errorf("it executes another file than was written down: %w", ErrNotPlugin)
	}
	return nil
}
