// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/eventlog"
	"golang.org/x/sys/windows/svc/mgr"

	"github.com/pointsman/pointsman/host/config"
)

// This file has the host run as a service of Windows, which the service control manager starts,
// stops, and starts again when it fails.

// managedName is that of the service, and of what it writes to the event log.
const managedName = "pointsman"

// stopLimit is how long the service has to stop, before it is removed.
const stopLimit = 30 * time.Second

// managedFlag is the flag of run that a service is installed with: so nothing has to be guessed by the
// parent process.
const managedFlag = "managed"

// mayBeManaged defines the flag.
func mayBeManaged(c *cobra.Command) {
	c.Flags().Bool(managedFlag, false, "the service control manager has started it")
	_ = c.Flags().MarkHidden(managedFlag) // it is defined
}

// underManager runs the host as a service, where the service control manager started this process.
// Else done is false.
func underManager(c *cobra.Command, run func(context.Context, io.Writer) error) (done bool, err error) {
	if is, _ := c.Flags().GetBool(managedFlag); !is {
		return false, nil // as in a console
	}
	log, err := eventlog.Open(managedName)
	if err != nil {
		return true, fmt.Errorf("open the event log: %w", err)
	}
	defer log.Close()
	s := &managed{run: run, log: log}
	return true, errors.Join(svc.Run(managedName, s), s.err)
}

// A managed is the host as the service control manager sees it.
type managed struct {
	run func(context.Context, io.Writer) error
	log *eventlog.Log
	err error // how run ended
}

// Execute runs the host until the manager stops it. It ends with an error of its own where the host
// does, so that the manager starts it again.
func (s *managed) Execute(_ []string, requests <-chan svc.ChangeRequest, states chan<- svc.Status) (own bool, code uint32) {
	states <- svc.Status{State: svc.StartPending}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx, events{s.log}.byLevel()) }() // ends with ctx
	states <- svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptShutdown}
	for {
		select {
		case s.err = <-ended:
			if s.err == nil {
				return false, 0
			}
			_ = s.log.Error(eventID, "pointsman: "+s.err.Error())
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

// eventID is that of each entry: what it says is in its text.
const eventID = 1

// events writes lines to the event log.
type events struct{ log *eventlog.Log }

// byLevel has each line be an entry of its level.
func (e events) byLevel() io.Writer {
	return hclog.NewLeveledWriter(entry(e.log.Info), map[hclog.Level]io.Writer{hclog.Warn: entry(e.log.Warning), hclog.Error: entry(e.log.Error)})
}

// An entry is a way to write one.
type entry func(id uint32, text string) error

func (write entry) Write(line []byte) (int, error) { return len(line), write(eventID, string(line)) }

// managerVerbs are those by which a service of Windows comes and goes.
func managerVerbs() []*cobra.Command {
	install := &cobra.Command{
		Use:   "install",
		Short: "Have Windows run the host as a service, from now on",
		Long: `Install has the service control manager run the host, with the flags that are given here: now, at each
start of the machine, and again whenever it fails. What it says is in the event log, under pointsman.`,
		Args: noWords(),
		RunE: func(c *cobra.Command, _ []string) error {
			if _, err := settings(c); err != nil {
				return err
			}
			unset, err := installService(runWords(c.Flags()))
			if err != nil {
				return fmt.Errorf("install the service %s: %w", managedName, asAdministrator(err))
			}
			if unset != nil {
				fmt.Fprintf(c.ErrOrStderr(), "pointsman: Windows will not start the service again when it fails: %v\n", unset)
			}
			fmt.Fprintf(c.OutOrStdout(), "the service %s is installed and started; pointsman status tells how it is\n", managedName)
			return nil
		},
	}
	config.AddFlags(install.Flags())
	remove := &cobra.Command{
		Use:   "remove",
		Short: "Stop the service of Windows, and have none",
		Args:  noWords(),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := removeService(c.Context()); err != nil {
				return fmt.Errorf("remove the service %s: %w", managedName, asAdministrator(err))
			}
			fmt.Fprintf(c.OutOrStdout(), "the service %s is removed\n", managedName)
			return nil
		},
	}
	return []*cobra.Command{install, remove}
}

// runWords are those by which the service runs as it is installed.
func runWords(flags *pflag.FlagSet) []string {
	words := []string{"run", "--" + managedFlag}
	flags.Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			if at, err := filepath.Abs(v); err == nil && slices.Contains(placeFlags, f.Name) {
				v = at // a service begins in a folder of the system's
			}
			words = append(words, "--"+f.Name+"="+v)
		}
	})
	return words
}

// placeFlags are the flags with a path in them.
var placeFlags = []string{"config", "files", "kubeconfig", "plugin-dir", "state-dir"}

// asAdministrator says what to do where err is that this user may not.
func asAdministrator(err error) error {
	if errors.Is(err, windows.ERROR_ACCESS_DENIED) {
		return fmt.Errorf("%w; try: in a console of an administrator", err)
	}
	return err
}

// installService makes the service and starts it. What fails leaves none. unset is why Windows will not
// start it again when it fails; nil: it will.
func installService(words []string) (unset, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	m, err := mgr.Connect()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Disconnect()) }()
	s, err := m.CreateService(managedName, self, mgr.Config{
		StartType: mgr.StartAutomatic, DisplayName: "Pointsman",
		Description: "Serves the addresses of Services with a relay to their endpoints.",
	}, words...)
	if errors.Is(err, windows.ERROR_SERVICE_EXISTS) {
		return nil, fmt.Errorf("%w; try: pointsman service remove", err)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	unset = restarted(s)
	if err = eventlog.InstallAsEventCreate(managedName, eventlog.Info|eventlog.Warning|eventlog.Error); err != nil {
		err = fmt.Errorf("prepare the event log: %w", err)
	} else {
		err = s.Start()
	}
	if err != nil {
		_ = eventlog.Remove(managedName) // there may be none yet
		err = errors.Join(err, s.Delete())
	}
	return unset, err
}

// restarted has Windows start a service again whenever it fails, later each time.
func restarted(s *mgr.Service) error {
	again := make([]mgr.RecoveryAction, 0, 3)
	for _, delay := range []time.Duration{time.Second, 5 * time.Second, 30 * time.Second} { // the last one from then on
		again = append(again, mgr.RecoveryAction{Type: mgr.ServiceRestart, Delay: delay})
	}
	const forgotten = 24 * 60 * 60 // seconds after which the first delay comes again
	return errors.Join(s.SetRecoveryActions(again, forgotten), s.SetRecoveryActionsOnNonCrashFailures(true))
}

// removeService stops the service and removes it, and what the event log has of it.
func removeService(ctx context.Context) (err error) {
	m, err := mgr.Connect()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Disconnect()) }()
	s, err := m.OpenService(managedName)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := stopService(ctx, s); err != nil {
		return err
	}
	return errors.Join(s.Delete(), eventlog.Remove(managedName))
}

// stopService stops a service, and waits until it is.
func stopService(ctx context.Context, s *mgr.Service) error {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	for {
		now, err := s.Query()
		if err == nil && now.State == svc.Running {
			_, err = s.Control(svc.Stop)
		}
		changing := errors.Is(err, windows.ERROR_SERVICE_NOT_ACTIVE) || errors.Is(err, windows.ERROR_SERVICE_CANNOT_ACCEPT_CTRL)
		if now.State == svc.Stopped || err != nil && !changing {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it has not stopped within %s", stopLimit)
		case <-time.After(stopLimit / 100):
		}
	}
}
