// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package helper

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

const (
	supported = false
	noFollow  = 0
)

var errUnsupported = errors.New("helpers need Linux, and this is " + runtime.GOOS)

func separate() *syscall.SysProcAttr { return nil }

func bootID() string { return "" }

type stat struct {
	start   uint64
	session int
}

func readStat(int) (stat, error) { return stat{}, errUnsupported }

func resident(int) uint64 { return 0 }

type member struct{ pid int }

func family(Record, bool) []member { return nil }

func (member) kill() {}

func tokenOf(int, string) bool { return false }

func withToken(string) (pid int, start uint64) { return 0, 0 }

type exitWait struct{}

func awaitExit(*os.Process) (*exitWait, error) { return nil, errUnsupported }

func (*exitWait) Wait() bool { return false }

func (*exitWait) Close() {}
