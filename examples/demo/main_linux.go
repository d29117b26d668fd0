// SPDX-License-Identifier: Apache-2.0

/*
Command demo demonstrates Pointsman on one machine, without a cluster and without root. It runs the
real binaries, which must be in its own folder, on a copy of the manifests in configs/demo, and sends
requests continuously while it removes an endpoint and kills the plugin:

	requests ───────────────────▶ the Services' addresses
	manifests ─▶ pointsman run ══▶ pointsman-dataplane-NAME ─▶ servers in this process

For root it runs in its own network and mount namespaces, where it may write rules. There it also
swaps the mode under the same load. It changes nothing outside of its temporary folder and these
namespaces. Start reading at demo.run.
*/
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/configs"
)

const (
	insideArg    = "-inside"   // the argument of the process in its own namespaces
	noNamespaces = 77          // its exit status if it may not set them up
	relay        = "userspace" // the mode whose plugin relays connections
)

func main() {
	signal.Ignore(syscall.SIGPIPE) // `make demo | head` must not prevent the cleanup
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	self, err := os.Executable()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	d := &demo{bin: filepath.Dir(self), inside: slices.Contains(os.Args[1:], insideArg), load: load{cut: func() {}}}
	if os.Geteuid() == 0 && !d.inside {
		if code := runInside(ctx, self); code != noNamespaces {
			os.Exit(code)
		}
		fmt.Println("Root may not make namespaces here. The demo runs as for an unprivileged user.")
	}
	if d.inside {
		if err := enter(); err != nil {
			fmt.Println(err)
			os.Exit(noNamespaces)
		}
	}
	err = d.run(ctx)
	if ctx.Err() != nil {
		err = errors.New("interrupted; all processes of the demo have ended")
	}
	if err = errors.Join(err, d.close()); err != nil {
		fmt.Printf("\ndemo: %v\n", err)
	}
	fmt.Printf("\ndemo: %d requests, %d failed\n", d.load.requests.Load(), d.load.failed.Load())
	if err != nil {
		os.Exit(1)
	}
}

// runInside runs this program in its own network and mount namespaces, and returns its exit status.
// All children of a demo get a signal when their parent ends. The kernel sends it when the thread
// that started them ends, and Go ends no thread before the process.
func runInside(ctx context.Context, self string) int {
	cmd := exec.CommandContext(ctx, self, insideArg)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Run(); cmd.ProcessState == nil {
		fmt.Println(err)
		return noNamespaces
	}
	return cmd.ProcessState.ExitCode() & 0xff // -1 after a signal
}

// enter sets up the namespaces of this process. A tmpfs hides /run, so that
// the plugins' ledger and the demo's folder end with the mount namespace. lo gets an address
// besides 127.0.0.1, because masquerading needs one of global scope.
func enter() error {
	if err := unix.Mount("pointsman-demo", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mount a tmpfs on /run: %w", err)
	}
	lo := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: 1}} // its index in every namespace
	addr := &netlink.Addr{IPNet: netlink.NewIPNet(net.IPv4(10, 77, 77, 77))}
	return errors.Join(netlink.LinkSetUp(lo), netlink.AddrAdd(lo, addr), os.Setenv("TMPDIR", "/run"))
}

// A demo is one run with its processes and files.
type demo struct {
	inside   bool         // in its own namespaces, where it may write rules
	bin      string       // the folder of the binaries
	folder   string       // for everything that the demo and its children write
	claim    net.Listener // of an address below this demo's prefix, until the process ends
	services []service
	load     load
	host     *exec.Cmd               // nil before it starts
	fail     context.CancelCauseFunc // ends the current step
}

// run runs the steps one after the other, until one fails.
func (d *demo) run(ctx context.Context) error {
	ctx, d.fail = context.WithCancelCause(ctx)
	time.AfterFunc(10*time.Minute, func() { d.fail(errors.New("the demo took longer than 10 minutes")) })
	if err := d.prepare(); err != nil {
		return err
	}
	go func() {
		for range time.Tick(5 * time.Second) {
			say("... %d requests so far, %d failed", d.load.requests.Load(), d.load.failed.Load())
		}
	}()
	for i, step := range []struct {
		title string
		run   func(context.Context) error
	}{
		{"Serve two Services from a folder of manifests", d.start},
		{"Send requests all the time", d.answers},
		{"Remove an endpoint from its manifest", d.edit},
		{"Kill the plugin, a relay", func(ctx context.Context) error { return d.kill(ctx, relay) }},
		{"Print the status of the host", d.status},
		{"Swap the mode", d.swaps},
		{"Wait for the last answers", d.finish},
	} {
		fmt.Printf("\n%d  %s\n", i+1, step.title)
		if err := step.run(ctx); err != nil {
			log, _ := os.ReadFile(d.path("host.log")) // empty if it cannot be read
			return fmt.Errorf("step %d: %w\nthe host's log:\n%s", i+1, err, log)
		}
	}
	return nil
}

// prepare writes the host's config and the manifests, and starts the servers.
func (d *demo) prepare() (err error) {
	if d.folder, err = os.MkdirTemp("", "pointsman-demo-"); err != nil {
		return err
	}
	if err := os.Mkdir(d.path("demo"), 0o700); err != nil {
		return err
	}
	var prefix string
	for i := range 128 { // until one that no other demo has
		prefix = fmt.Sprintf("127.%d.", 64+(os.Getpid()+i)%128)
		if d.claim, err = net.Listen("tcp", prefix+"0.1:7780"); !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("find free addresses in 127.0.0.0/8: %w", err)
	}
	for _, name := range []string{"demo.yaml", "demo/web.yaml", "demo/clock.yaml"} {
		text, _ := configs.Demo.ReadFile(name) // it is embedded
		if err := os.WriteFile(d.path(name), bytes.ReplaceAll(text, []byte("127.77."), []byte(prefix)), 0o600); err != nil {
			return err
		}
	}
	at := func(name, addr string) *endpoint { return &endpoint{name: name, addr: prefix + addr} }
	d.services = []service{
		{"web", "tcp", prefix + "0.10:7780", []*endpoint{at("web-a", "1.1:7781"), at("web-b", "1.2:7781"), at("web-c", "1.3:7781")}},
		{"clock", "udp", prefix + "0.11:7753", []*endpoint{at("clock-a", "2.1:7754"), at("clock-b", "2.2:7754")}},
	}
	for _, s := range d.services {
		for _, e := range s.endpoints {
			if err := e.serve(s.network); err != nil {
				return fmt.Errorf("start the server %s: %w", e.name, err)
			}
		}
	}
	return nil
}

// close ends all processes of the demo and removes its files.
func (d *demo) close() (err error) {
	d.load.end()
	if d.host == nil {
		return os.RemoveAll(d.folder)
	}
	_ = d.host.Process.Signal(os.Interrupt) // it may have ended
	for began := time.Now(); len(d.processes("")) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			for _, pid := range d.processes("") {
				err = errors.Join(err, fmt.Errorf("process %d did not end in 30 s, and is killed", pid), unix.Kill(pid, unix.SIGKILL))
			}
		}
	}
	return errors.Join(err, os.RemoveAll(d.folder))
}

// processes returns the IDs of the processes of the demo and its children whose command lines contain
// word.
func (d *demo) processes(word string) (pids []int) {
	found, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	for _, dir := range found {
		env, _ := os.ReadFile(dir + "/environ") // empty if it has ended or belongs to another user
		line, _ := os.ReadFile(dir + "/cmdline")
		if bytes.Contains(env, []byte("TMPDIR="+d.folder+"\x00")) && bytes.Contains(line, []byte(word)) {
			pids = append(pids, 0)
			_, _ = fmt.Sscanf(dir, "/proc/%d", &pids[len(pids)-1])
		}
	}
	return pids
}

// path returns the path of a file in the demo's folder.
func (d *demo) path(name string) string { return filepath.Join(d.folder, name) }

// pointsman returns the command for a verb, without settings from the environment.
func (d *demo) pointsman(ctx context.Context, verb ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, d.bin+"/pointsman", append(verb, "--admin-socket", d.path("sock"), "--plugin-dir", d.bin)...)
	settings := func(e string) bool { return strings.HasPrefix(e, "POINTSMAN_") }
	cmd.Env = append(slices.DeleteFunc(os.Environ(), settings), "TMPDIR="+d.folder)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL} // only the demo gets Ctrl-C
	return cmd
}

// start starts the host, waits until it serves, and starts the load.
func (d *demo) start(ctx context.Context) error {
	log, err := os.Create(d.path("host.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	host := d.pointsman(context.Background(), "run", "--config", d.path("demo.yaml"), "--state-dir", d.path("state"))
	host.Stdout, host.Stderr, host.SysProcAttr.Pdeathsig = log, log, syscall.SIGINT
	say("$ %s", strings.Join(host.Args, " "))
	if err := host.Start(); err != nil {
		return err
	}
	d.host = host
	go func() { d.fail(fmt.Errorf("the host ended: %v", host.Wait())) }()
	return d.serves(ctx)
}

// serves waits until each Service answers, and starts the load.
func (d *demo) serves(ctx context.Context) error {
	began := time.Now()
	for _, s := range d.services {
		if err := wait(ctx, func() bool { _, err := s.request(ctx); return err == nil }); err != nil {
			return fmt.Errorf("wait for an answer of %s: %w", s.name, err)
		}
		say("%s answers at %s/%s after %s", s.name, s.addr, s.network, since(began))
	}
	d.load.start(d.services, d.fail)
	return nil
}

// answers waits until each endpoint has answered 30 more requests.
func (d *demo) answers(ctx context.Context) error {
	for _, s := range d.services {
		for _, e := range s.endpoints {
			e.answers.Store(0)
		}
	}
	line := "answers:"
	for _, s := range d.services {
		for _, e := range s.endpoints {
			if err := wait(ctx, func() bool { return e.answers.Load() >= 30 }); err != nil {
				return fmt.Errorf("wait for answers of %s: %w", e.name, err)
			}
			line += fmt.Sprintf("  %s %d", e.name, e.answers.Load())
		}
	}
	say("%s", line)
	return nil
}

// edit removes an endpoint from its manifest, and waits until it gets no requests. The load of the
// next step counts an answer of that endpoint as a failure.
func (d *demo) edit(ctx context.Context) error {
	file := d.path("demo/web.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	last := bytes.LastIndex(text, []byte("\n- ")) + 1
	say("%s loses its last line: %s", file, bytes.TrimSpace(text[last:]))
	if err := errors.Join(os.WriteFile(d.path("new"), text[:last], 0o600), os.Rename(d.path("new"), file)); err != nil {
		return err
	}
	web := &d.services[0]
	removed := web.endpoints[2]
	web.endpoints = web.endpoints[:2]
	for removed.answers.Swap(0) > 0 {
		if err := d.answers(ctx); err != nil {
			return err
		}
	}
	say("%s gets no more requests", removed.name)
	return nil
}

// kill kills the plugin of a mode, and waits until the host has started another process.
func (d *demo) kill(ctx context.Context, mode string) error {
	killed := d.processes("pointsman-dataplane-" + mode)
	d.load.excused.Store(mode == relay)
	for _, pid := range killed {
		say("$ kill -9 %d", pid)
		_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
	}
	err := wait(ctx, func() bool {
		now := d.processes("pointsman-dataplane-" + mode)
		return len(now) > 0 && !slices.Contains(killed, now[0])
	})
	if err == nil && mode == relay {
		d.load.end() // datagrams that the killed process had read get no answer
		err = d.serves(ctx)
		say("the kill of the relay cost %d requests, which are counted separately", d.load.lost.Load())
	}
	if err == nil {
		err = d.answers(ctx)
	}
	return err
}

// finish waits for the answers to the requests in flight.
func (d *demo) finish(ctx context.Context) error {
	defer context.AfterFunc(ctx, d.load.end)()
	d.load.ending.Store(true)
	d.load.callers.Wait()
	return context.Cause(ctx)
}

// status prints the status of the host. The verb exits with 2 if there is a warning, as after a restart.
func (d *demo) status(ctx context.Context) error {
	say("$ pointsman status")
	out, err := d.pointsman(ctx, "status").Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 2 {
		err = nil
	}
	say("%s", strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", "\n   "))
	return err
}

// swaps swaps to other modes and back, as far as this user, kernel and machine can.
func (d *demo) swaps(ctx context.Context) error {
	if !d.inside {
		say("(skipped: other modes write rules, which needs root and a network namespace: sudo make demo)")
		return nil
	}
	lacks := map[string]string{"nftables": "this kernel has no nf_tables", "iptables": "iptables is not installed"}
	for _, mode := range []string{"nftables", relay, "iptables", relay} {
		if why, err := d.pointsman(ctx, "plugin", "check", mode).CombinedOutput(); err != nil {
			say("(skipped: %s: %s)", lacks[mode], strings.Join(strings.Fields(string(why)), " "))
			return context.Cause(ctx)
		}
		err := d.swap(ctx, mode)
		if err == nil && mode != relay {
			err = d.kill(ctx, mode) // the kernel continues to forward
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// swap swaps the mode. It repeats a swap that the host refuses, because the former mode still drains,
// or rolls back, because the machine is too slow.
func (d *demo) swap(ctx context.Context, mode string) error {
	say("$ pointsman mode swap %s --wait", mode)
	began := time.Now()
	for try := 1; ; try++ {
		out, err := d.pointsman(ctx, "mode", "swap", mode, "--wait").CombinedOutput()
		say("%s (%s)", bytes.TrimSpace(out), since(began))
		if err == nil {
			return d.answers(ctx)
		}
		if try == 10 || ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		time.Sleep(3 * time.Second)
	}
}

// wait waits until done returns true, a request fails or the host ends.
func wait(ctx context.Context, done func() bool) error {
	for ; !done(); time.Sleep(50 * time.Millisecond) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

func say(format string, args ...any) { fmt.Printf("   "+format+"\n", args...) }

// since formats the time since began as "1.5 s".
func since(began time.Time) string { return fmt.Sprintf("%.1f s", time.Since(began).Seconds()) }

// A service is a Service of configs/demo.
type service struct {
	name, network, addr string
	endpoints           []*endpoint
}

// An endpoint is a server in this process. It answers with its name.
type endpoint struct {
	name, addr string
	answers    atomic.Int64
}

// serve starts the server, which ends with the process.
func (e *endpoint) serve(network string) error {
	if network == "tcp" {
		l, err := net.Listen(network, e.addr)
		if err == nil {
			go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, e.name) }))
		}
		return err
	}
	conn, err := net.ListenPacket(network, e.addr)
	if err == nil {
		go func() {
			for packet := make([]byte, 512); ; {
				if _, from, err := conn.ReadFrom(packet); err == nil {
					_, _ = conn.WriteTo([]byte(e.name+"\n"), from)
				}
			}
		}()
	}
	return err
}

// request sends one request on a new connection, and returns the endpoint that answered. It waits long,
// because a busy machine is no failure.
func (s service) request(ctx context.Context) (*endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, s.network, s.addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	if _, err := fmt.Fprint(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return nil, err
	}
	answer := bufio.NewScanner(conn)
	for answer.Scan() {
		if i := slices.IndexFunc(s.endpoints, func(e *endpoint) bool { return e.name == answer.Text() }); i >= 0 {
			return s.endpoints[i], nil
		}
	}
	return nil, errors.Join(fmt.Errorf("no endpoint of %s answered", s.name), answer.Err())
}

// A load is a number of callers. Each sends one request after the other, and repeats none.
type load struct {
	requests, failed, lost atomic.Int64       // requests includes failed, and not lost
	excused                atomic.Bool        // failures count as lost, because the relay was killed
	ending                 atomic.Bool        // callers send no more requests
	cut                    context.CancelFunc // ends the requests in flight
	callers                sync.WaitGroup
}

// start starts four callers of each Service. It passes failures that are not excused to fail.
func (l *load) start(services []service, fail func(error)) {
	ctx, cut := context.WithCancel(context.Background())
	l.cut = cut
	l.ending.Store(false)
	l.excused.Store(false)
	for _, s := range slices.Repeat(services, 4) {
		l.callers.Go(func() {
			for ; !l.ending.Load(); time.Sleep(25 * time.Millisecond) {
				began := time.Now()
				e, err := s.request(ctx)
				switch {
				case err == nil:
					l.requests.Add(1)
					e.answers.Add(1)
				case l.excused.Load():
					l.lost.Add(1)
				default:
					l.requests.Add(1)
					l.failed.Add(1)
					fail(fmt.Errorf("a request failed after %s: %w", since(began), err))
				}
			}
		})
	}
}

// end ends the load. It excuses the requests in flight.
func (l *load) end() {
	l.ending.Store(true)
	l.excused.Store(true)
	l.cut()
	l.callers.Wait()
}
