// SPDX-License-Identifier: Apache-2.0

//go:build !linux && !windows

package launch

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
)

func separate() *syscall.SysProcAttr { return nil }

// StartTime returns when process pid started. This system has no way to tell that we
// know of; zero stands for that.
func StartTime(int) (uint64, error) { return 0, nil }

// watch asks for the process again and again, until it is gone.
func watch(pid int, _ uint64) (*process, error) {
	found, err := os.FindProcess(pid)
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, os.ErrProcessDone)
	}
	p := newProcess(pid)
	p.signal = found.Signal
	stop := make(chan struct{})
	p.forget = func() { close(stop) }
	go p.follow(found, stop)
	return p, nil
}

// follow ends with the process, or when forget closes stop.
func (p *process) follow(found *os.Process, stop <-chan struct{}) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for found.Signal(syscall.Signal(0)) == nil {
		select {
		case <-tick.C:
		case <-stop:
			return
		}
	}
	p.end(Exit{Code: -1})
}

func oomScore(int, int) error {
	return fmt.Errorf("%s has no score for when memory runs out", runtime.GOOS)
}

// NetNS is empty here: only Linux has network namespaces.
func NetNS() (string, error) { return "", nil }

// FindMarked finds none here: this system has no way to look into environments that we
// know of.
func FindMarked() ([]Marked, error) { return nil, nil }

// SeesDir is false here.
func (m Marked) SeesDir(string) bool { return false }

// End ends nothing here: there is none to end.
func (m Marked) End(context.Context) error { return ErrNotPlugin }

func traits(int) (netns, exe string) { return "", "" }

// shows returns an error here: nothing tells a process from another that gets its pid.
func (h Handle) shows(*process) error { return ErrNotPlugin }
