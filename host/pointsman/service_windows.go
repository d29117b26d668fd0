// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/windows/svc"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/sdk/statefile"
)

// stopLimit is how long Windows waits for the service to stop.
const stopLimit = 30 * time.Second

// asService runs the host as a Windows service if the service control manager started this process;
// otherwise done is false. The log goes to a file, because a service has no console.
func asService(run func(context.Context, io.Writer) error) (done bool, err error) {
	if is, err := svc.IsWindowsService(); err != nil || !is {
		return false, nil
	}
	dir := filepath.Dir(config.UsualFile)
	if err := statefile.MakeDir(dir); err != nil {
		return true, err
	}
	file := filepath.Join(dir, "host.log")
	_ = os.Rename(file, file+".old") // there may be none
	log, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return true, err
	}
	defer log.Close()
	s := &service{run: run, log: log}
	return true, errors.Join(svc.Run("pointsman", s), s.err)
}

// A service implements svc.Handler for the host.
type service struct {
	run func(context.Context, io.Writer) error
	log io.Writer
	err error // how run ended
}

// Execute runs the host until the manager stops it. It returns 1 if the host fails, so that the
// manager restarts it.
func (s *service) Execute(_ []string, requests <-chan svc.ChangeRequest, states chan<- svc.Status) (own bool, code uint32) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx, s.log) }() // ends with ctx
	states <- svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptShutdown}
	for {
		select {
		case s.err = <-ended:
			if s.err == nil {
				return false, 0
			}
			_, _ = io.WriteString(s.log, "pointsman: "+s.err.Error()+"\n")
			return true, 1
		case r := <-requests:
			switch r.Cmd {
			case svc.Interrogate:
				states <- r.CurrentStatus
			case svc.Stop, svc.Shutdown:
				states <- svc.Status{State: svc.StopPending, WaitHint: uint32(stopLimit.Milliseconds())}
				cancel()
			}
		}
	}
}
