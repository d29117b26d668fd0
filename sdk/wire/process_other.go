// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package wire

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"syscall"
	"time"
)

func separate() *syscall.SysProcAttr { return nil }

// StartTime is when process pid started. This system has no way to tell that we
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
	p.exit = Exit{Code: -1}
	close(p.exited)
}

func oomScore(int, int) error {
	return fmt.Errorf("%s has no score for when memory runs out", runtime.GOOS)
}

type peer struct {
	pid int
	uid uint32
}

func peerOf(net.Conn) (peer, error) { return peer{}, nil }

// Here the socket's directory must do: nobody says who is at the other end.

func trusted(net.Conn, ...uint32) error { return nil }

func isProcess(net.Conn, int) error { return nil }
