// SPDX-License-Identifier: Apache-2.0

// Package notify reports to the service manager, such as systemd, that a process is ready and that
// it is not stuck. Hosts and plugins use it.
package notify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// The messages of sd_notify(3).
const (
	Ready    = "READY=1"
	watchdog = "WATCHDOG=1"
)

// Notify sends state to the service manager that started this process, if it expects messages.
func Notify(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Net: "unixgram", Name: path})
	if err == nil {
		defer conn.Close()
		_, err = conn.Write([]byte(state))
	}
	if err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}

// Watch sends the watchdog message as often as the service manager expects it, until ctx ends.
// It sends nothing while well returns false, so that the service manager ends the process after a
// while. It returns at once if the service manager expects no such messages.
func Watch(ctx context.Context, well func() bool) error {
	period, asked, err := watchPeriod(os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID"), os.Getpid())
	if err != nil || !asked {
		return err
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		if well() {
			if err := Notify(watchdog); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watchPeriod returns half of the time after which the service manager ends the process.
func watchPeriod(usec, forPID string, pid int) (period time.Duration, asked bool, err error) {
	if usec == "" || forPID != "" && forPID != strconv.Itoa(pid) {
		return 0, false, nil
	}
	n, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || n <= 1 {
		return 0, false, errors.New("WATCHDOG_USEC is " + strconv.Quote(usec) + ": want a number of microseconds")
	}
	return time.Duration(n) * time.Microsecond / 2, true, nil
}
