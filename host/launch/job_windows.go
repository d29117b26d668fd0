// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"fmt"
	"os/exec"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Tie has the processes that this one starts from now on, and those that they start, end with it,
// however it ends: they are in a job object that Windows ends when its last handle is closed, and
// this process has the only one. A plugin that is to outlive the host leaves the job
// (Command.Outlives). Where another program has put this process in a job, that one's rules hold,
// and nothing is tied.
func Tie() error {
	if is, err := inJob(windows.CurrentProcess(), 0); is || err != nil {
		return err
	}
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return fmt.Errorf("make a job object: %w", err)
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{}
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE | windows.JOB_OBJECT_LIMIT_BREAKAWAY_OK
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation, uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err == nil {
		err = windows.AssignProcessToJobObject(job, windows.CurrentProcess())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("have what this process starts end with it: %w", err), windows.CloseHandle(job))
	}
	return nil // the handle is closed by the end of this process
}

// begin starts cmd, and returns what it was started by. A process that is to leave the job of this
// one is started without leaving it where another program has made that job, and lets none leave.
func begin(cmd *exec.Cmd) (*exec.Cmd, error) {
	err := cmd.Start()
	leaves := cmd.SysProcAttr != nil && cmd.SysProcAttr.CreationFlags&windows.CREATE_BREAKAWAY_FROM_JOB != 0
	if !leaves || !errors.Is(err, windows.ERROR_ACCESS_DENIED) {
		return cmd, err
	}
	stays := *cmd.SysProcAttr
	stays.CreationFlags &^= windows.CREATE_BREAKAWAY_FROM_JOB
	again := &exec.Cmd{Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir, Stdout: cmd.Stdout, Stderr: cmd.Stderr, SysProcAttr: &stays}
	return again, again.Start()
}
