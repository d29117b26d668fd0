// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/windows"
)

// A job is a job object that a plugin is in, with all that it starts, so that those end with it. One
// that is started with CREATE_BREAKAWAY_FROM_JOB leaves it, and outlives the plugin. The zero job is none.
//
//	host ── handle ──▶ job ◀── handle ── plugin ── starts ──▶ others
//
// Windows forgets the name of a job once no process has a handle of it. So the plugin gets one: a
// host that is killed leaves the plugin serving, and the next host finds the job by its name.
type job struct{ handle windows.Handle }

// jobName is what the job of a launch is called: no other user can guess it, and have one of that
// name before.
func jobName(launch string) (*uint16, error) {
	return windows.UTF16PtrFromString(`Local\pointsman-` + launch)
}

// gather puts the process, a plugin that was started just now, into a job of its own. What the plugin
// has started before that is not in it. An error leaves the plugin as it is.
func gather(launch string, pid int) (job, error) {
	name, err := jobName(launch)
	if err != nil {
		return job{}, err
	}
	handle, err := windows.CreateJobObject(nil, name)
	if err != nil {
		return job{}, fmt.Errorf("make a job object: %w", err)
	}
	j := job{handle}
	if err := j.take(pid); err != nil {
		j.close()
		return job{}, fmt.Errorf("have what process %d starts end with it: %w", pid, err)
	}
	return j, nil
}

// take puts the process into the job, and gives it a handle that may do nothing but ask.
func (j job) take(pid int) error {
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{}
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_BREAKAWAY_OK
	if _, err := windows.SetInformationJobObject(j.handle, windows.JobObjectExtendedLimitInformation, uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits))); err != nil {
		return err
	}
	const access = windows.PROCESS_SET_QUOTA | windows.PROCESS_TERMINATE | windows.PROCESS_DUP_HANDLE
	process, err := windows.OpenProcess(access, false, uint32(pid))
	if err != nil {
		return err
	}
	defer windows.CloseHandle(process)
	if err := windows.AssignProcessToJobObject(j.handle, process); err != nil {
		return err
	}
	var theirs windows.Handle // closed by the end of the plugin
	return windows.DuplicateHandle(windows.CurrentProcess(), j.handle, process, &theirs, jobQuery, false, 0)
}

// Rights to a job that golang.org/x/sys/windows has no names for.
const (
	jobQuery     = 0x4
	jobTerminate = 0x8
)

// findJob returns the job that an earlier host made at that launch; none, where the process is not in it.
func findJob(launch string, process windows.Handle) job {
	name, err := jobName(launch)
	open := windows.NewLazySystemDLL("kernel32.dll").NewProc("OpenJobObjectW")
	if launch == "" || err != nil || open.Find() != nil {
		return job{}
	}
	handle, _, _ := open.Call(jobQuery|jobTerminate, 0, uintptr(unsafe.Pointer(name)))
	j := job{windows.Handle(handle)}
	if j.handle == 0 {
		return job{}
	}
	if !j.has(process) {
		j.close()
		return job{}
	}
	return j
}

// has reports whether the process, which is open, is in the job.
func (j job) has(process windows.Handle) bool {
	pid, err := windows.GetProcessId(process)
	if err != nil {
		return false
	}
	asked, err := windows.OpenProcess(windows.PROCESS_QUERY_INFORMATION, false, pid) // wine 8.0 wants that right, Windows less
	if err != nil {
		return false
	}
	defer windows.CloseHandle(asked)
	is, err := inJob(asked, j.handle)
	return is && err == nil
}

// end ends what is in the job, and closes it.
func (j job) end() {
	if j.handle != 0 {
		_ = windows.TerminateJobObject(j.handle, 1) // it fails only for a handle that is none
		j.close()
	}
}

// close lets go of the job, and what is in it goes on.
func (j job) close() {
	if j.handle != 0 {
		_ = windows.CloseHandle(j.handle)
	}
}

// inJob reports whether the process is in that job; zero: in any. golang.org/x/sys/windows does
// not have the call.
func inJob(process, job windows.Handle) (bool, error) {
	ask := windows.NewLazySystemDLL("kernel32.dll").NewProc("IsProcessInJob")
	if err := ask.Find(); err != nil {
		return false, err
	}
	var is uint32
	if ok, _, err := ask.Call(uintptr(process), uintptr(job), uintptr(unsafe.Pointer(&is))); ok == 0 {
		return false, fmt.Errorf("ask whether a process is in a job: %w", err)
	}
	return is != 0, nil
}
