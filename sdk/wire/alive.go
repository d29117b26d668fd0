// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// A plugin that listens for itself is no child of a host. A host that finds it hung may not
// end it: what started it must, and so must find that out. The kubelet asks by the verb
// alive; systemd expects a message in time (sd_notify).

// aliveLimit is for an answer.
const aliveLimit = 3 * time.Second

// alive asks the plugin that listens at an address for its Hello.
func (c cli) alive(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return usageError(fmt.Sprintf("%s alive: want the address that it listens on: unix:///absolute/path", c.binary()))
	}
	at, err := At(args[0])
	if err != nil {
		return usageError(fmt.Sprintf("%s alive: %v", c.binary(), err))
	}
	ctx, cancel := context.WithTimeout(ctx, aliveLimit)
	defer cancel()
	remote, err := Attach(ctx, at)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "%s answers\n", remote.Hello())
	return remote.Close()
}

// reassure tells systemd that this process runs, twice as often as it asked for, until
// the plugin ends. It returns at once where systemd did not ask for it.
func (s *server) reassure() error {
	usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	socket, pid := os.Getenv("NOTIFY_SOCKET"), os.Getenv("WATCHDOG_PID")
	if err != nil || usec < 2 || socket == "" || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Net: "unixgram", Name: socket})
	if err != nil {
		return fmt.Errorf("tell systemd that all is well: %w", err)
	}
	defer conn.Close()
	tick := time.NewTicker(time.Duration(usec) * time.Microsecond / 2)
	defer tick.Stop()
	for {
		if _, err := conn.Write([]byte("WATCHDOG=1")); err != nil {
			return fmt.Errorf("tell systemd that all is well: %w", err)
		}
		select {
		case <-tick.C:
		case <-s.closing:
			return nil
		}
	}
}
