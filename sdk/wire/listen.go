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

// A socket is where a plugin listens for hosts, and for which users'.
type socket struct {
	address string   // as addressForm has it
	users   []uint32 // whose hosts may connect, beside this user's and root's
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
	err := c.flags("--listen", args, func(f *flag.FlagSet) { f.Func("allow-uid", "", on.allow) })
	if err != nil {
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

// listenAndServe serves the hosts that may connect to that socket, until a SIGTERM or a
// host's Shutdown. It is for a plugin that something other than a host starts: a
// container of its own, or systemd. Its log is written to w.
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
	g := grpc.NewServer(append(serverOptions(), grpc.StatsHandler(&connections{session: &s.session}))...)
	s.register(g)
	reflection.Register(g) // so that grpcurl and the like know the messages
	go s.stopWhenEnded(g)  // ends with the server
	return g.Serve(listener)
}

// aliveLimit is for an answer.
const aliveLimit = 3 * time.Second

// alive asks the plugin that listens at an address for its Hello, for what started that:
// a host that finds it hung may not end it, for it is no child of the host's. The kubelet
// asks by this verb; systemd expects a message in time.
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
