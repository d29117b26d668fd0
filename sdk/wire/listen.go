// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"

	"github.com/pointsman/pointsman/internal/notify"
)

// A socket is the address at which a plugin listens, and the users whose hosts may connect.
type socket struct {
	address string   // in the form of addressForm
	users   []uint32 // users whose hosts may connect, in addition to this user and root
}

func (c cli) listen(args []string) error {
	address := ""
	if len(args) > 0 {
		address, args = args[0], args[1:]
	}
	if _, err := At(address); err != nil {
		return usageError(fmt.Sprintf("%s --listen: %v", c.binary(), err))
	}
	on := socket{address: address}
	if _, err := c.flags("--listen", args, func(f *flag.FlagSet) { f.Func("allow-uid", "", on.allow) }); err != nil {
		return err
	}
	return listenAndServe(newServer(c.description, c.dataplane), on, c.stderr)
}

// allow adds a user, by number or name.
func (s *socket) allow(account string) error {
	if runtime.GOOS == "windows" {
		return errors.New("a pipe of Windows is open to this user, administrators and the system, and to no others")
	}
	if named, err := user.Lookup(account); err == nil {
		account = named.Uid
	}
	uid, err := strconv.ParseUint(account, 10, 32)
	if err != nil {
		return fmt.Errorf("there is no user %q here", account)
	}
	s.users = append(s.users, uint32(uid))
	return nil
}

// listenAndServe serves hosts that connect to the socket, until SIGTERM or a host's Shutdown.
// It is for a plugin that a host does not start: a container of its own, or systemd does. It
// writes its log to w.
func listenAndServe(s *server, on socket, w io.Writer) error {
	listener, err := on.listen()
	if err != nil {
		return err
	}
	defer onSignals(s, os.Interrupt, syscall.SIGTERM)()
	logs := newLogWriter(w)
	s.log, s.lost = slog.New(slog.NewTextHandler(logs, logOptions())), logs.dropped.Load
	defer logs.close(lastLines)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // ends with the server
		if err := notify.Watch(ctx, func() bool { return true }); err != nil && ctx.Err() == nil {
			fmt.Fprintln(w, err)
		}
	}()
	g := grpc.NewServer(append(serverOptions(), grpc.StatsHandler(&connections{began: func() {}, session: &s.session}))...)
	s.register(g)
	reflection.Register(g) // for grpcurl and similar tools
	go s.stopWhenEnded(g)  // ends with the server
	return g.Serve(listener)
}

// aliveLimit limits the answer to alive.
const aliveLimit = 3 * time.Second

// alive checks that the plugin at an address answers Hello. It is for whatever started the
// plugin, because a host must not kill a hung process that is not its child: the kubelet runs
// this verb as a probe; systemd expects a watchdog message instead.
func (c cli) alive(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return usageError(fmt.Sprintf("%s alive: want the address that it listens on: %s", c.binary(), addressForm))
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
