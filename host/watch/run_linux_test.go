// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/eventually"
)

// A running is a source that follows a folder, or what else path is, as in a host.
type running struct {
	*harness
	stop  func()
	mu    sync.Mutex // guards heard
	heard []string
}

func run(t *testing.T, d *harness, path string, interval time.Duration) *running {
	t.Helper()
	r := &running{harness: d}
	d.source = Files(path, d.tracker, FileSettings{Interval: interval, Report: func(n track.Notice) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.heard = append(r.heard, n.Message)
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { _ = d.source.Run(ctx); close(done) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		begun := time.Now()
		<-done
		if took := time.Since(begun); took > 30*time.Second {
			t.Errorf("Run ended %s after its context", took)
		}
	})
	t.Cleanup(r.stop)
	return r
}

// served is what the tracker serves: "service=endpoints" for each.
func (r *running) served() string {
	var all []string
	for _, s := range r.tracker.Services() {
		var eps []string
		for _, ep := range s.Ports[0].Service.Cluster {
			eps = append(eps, ep.Addr.Addr().String())
		}
		all = append(all, s.Name+"="+strings.Join(eps, ","))
	}
	return strings.Join(all, " ")
}

// until waits for something to become true.
func (r *running) until(what string, is func() bool) {
	r.t.Helper()
	eventually.Succeeds(r.t, what, func() error {
		if !is() {
			return fmt.Errorf("served is %q, faults are %v", r.served(), r.source.Faults())
		}
		return nil
	})
}

func (r *running) serves(want string) {
	r.t.Helper()
	r.until(want, func() bool { return r.served() == want })
}

func (r *running) faulty(part string) bool {
	for _, f := range r.source.Faults() {
		if strings.Contains(f.Error(), part) {
			return true
		}
	}
	return false
}

// never is an interval in which no look comes but those that the kernel's news bring.
const never = time.Hour

// Each way to change a file is followed at once, without a look at the others.
func TestNews(t *testing.T) {
	d := newHarness(t)
	r := run(t, d, d.dir, never)
	web := func(ip string) string {
		return serviceText("web", "172.30.0.1") + "---\n" + sliceText("web", ip)
	}
	r.until("watching", func() bool {
		c := d.tracker.Cursor(sdk.Description{Features: sdk.Features})
		_, ok := c.Next()
		return ok
	})
	d.write("web.yaml", web("10.0.0.1"))
	r.serves("web=10.0.0.1")
	d.write("web.yaml", web("10.0.0.2"))
	r.serves("web=10.0.0.2")
	d.replace("web.yaml", web("10.0.0.3"))
	r.serves("web=10.0.0.3")
	for i := range 50 { // each a whole file, so none needs a second look
		d.replace("web.yaml", web(fmt.Sprintf("10.0.1.%d", i)))
	}
	r.serves("web=10.0.1.49")
	d.write("elsewhere", web("10.0.0.4"))
	if err := os.Rename(filepath.Join(d.dir, "elsewhere"), filepath.Join(d.dir, "web.yaml")); err != nil {
		t.Fatal(err)
	}
	r.serves("web=10.0.0.4")
	d.write("an\nodd name.yaml", serviceText("odd", "172.30.0.9"))
	r.serves("odd= web=10.0.0.4")
}

// The volume of a ConfigMap is followed at once, too.
func TestNewsOfConfigMap(t *testing.T) {
	d := newHarness(t)
	version := func(n int, ip string) {
		dir := fmt.Sprintf("..%d", n)
		must(t, os.Mkdir(filepath.Join(d.dir, dir), 0o700))
		d.write(filepath.Join(dir, "web.yaml"), serviceText("web", "172.30.0.1")+"---\n"+sliceText("web", ip))
		must(t, os.Symlink(dir, filepath.Join(d.dir, "..data_tmp")))
		must(t, os.Rename(filepath.Join(d.dir, "..data_tmp"), filepath.Join(d.dir, "..data")))
	}
	version(1, "10.0.0.1")
	must(t, os.Symlink(filepath.Join("..data", "web.yaml"), filepath.Join(d.dir, "web.yaml")))
	for _, path := range []string{d.dir, filepath.Join(d.dir, "web.yaml")} {
		d.tracker = track.New(nil)
		r := run(t, d, path, never)
		time.Sleep(200 * time.Millisecond) // so that it watches
		version(2+len(path), "10.0.0.2")
		r.serves("web=10.0.0.2")
		version(3+len(path), "10.0.0.3")
		r.serves("web=10.0.0.3")
		r.stop()
	}
}

// The folder may be moved away, replaced and made anew.
func TestFolderReplaced(t *testing.T) {
	d := newHarness(t)
	root := d.dir
	must(t, os.Mkdir(filepath.Join(root, "a"), 0o700))
	must(t, os.Mkdir(filepath.Join(root, "b"), 0o700))
	must(t, os.Symlink("a", filepath.Join(root, "now")))
	d.write("a/web.yaml", serviceText("web", "172.30.0.1"))
	d.write("b/api.yaml", serviceText("api", "172.30.0.2"))
	r := run(t, d, filepath.Join(root, "now"), 100*time.Millisecond)
	r.serves("web=")
	must(t, os.Symlink("b", filepath.Join(root, "next")))
	must(t, os.Rename(filepath.Join(root, "next"), filepath.Join(root, "now")))
	r.serves("api=")
	d.write("b/db.yaml", serviceText("db", "172.30.0.3"))
	r.serves("api= db=")
	must(t, os.RemoveAll(filepath.Join(root, "b")))
	r.until("gone", func() bool { return r.faulty("no such file or directory") })
	if got := r.served(); got != "api= db=" {
		t.Errorf("a folder that is gone took away: %q", got)
	}
	must(t, os.Mkdir(filepath.Join(root, "b"), 0o700))
	d.write("b/db.yaml", serviceText("db", "172.30.0.3"))
	r.serves("db=")
	r.until("no fault", func() bool { return len(r.source.Faults()) == 0 })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A process that writes a file in place, with pauses, is never caught in the middle.
func TestWriterInPlace(t *testing.T) {
	d := newHarness(t)
	whole := serviceText("web", "172.30.0.1") + "---\n" + sliceText("web", "10.0.0.1", "10.0.0.2")
	rest := "- addresses: [10.0.0.2]\n"
	d.write("web.yaml", whole)
	r := run(t, d, d.dir, 2*time.Second)
	r.serves("web=10.0.0.1,10.0.0.2")
	writer := exec.CommandContext(t.Context(), "sh", "-c", `while :; do { printf "%s" "$HALF"; sleep 0.2; printf "%s" "$REST"; } >web.yaml; done`)
	writer.Dir, writer.Env = d.dir, append(os.Environ(), "HALF="+strings.TrimSuffix(whole, rest), "REST="+rest)
	writer.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(t, writer.Start())
	stop := sync.OnceFunc(func() { _ = syscall.Kill(-writer.Process.Pid, syscall.SIGKILL); _ = writer.Wait() })
	defer stop()
	for end := time.Now().Add(9 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if got := r.served(); got != "web=10.0.0.1,10.0.0.2" {
			t.Fatalf("served is %q", got)
		}
	}
	r.until("said", func() bool { return r.faulty("it is written to again and again") })
	stop()
	d.write("web.yaml", serviceText("web", "172.30.0.1")+"---\n"+sliceText("web", "10.0.0.3"))
	r.serves("web=10.0.0.3")
	r.until("no fault", func() bool { return len(r.source.Faults()) == 0 })
}

// Ten thousand files that do not change cost next to nothing.
func TestIdle(t *testing.T) {
	d := newHarness(t)
	for i := range 10000 {
		d.write(fmt.Sprintf("s%05d.yaml", i), serviceText(fmt.Sprintf("s%d", i), fmt.Sprintf("172.30.%d.%d", i/200, i%200+1)))
	}
	r := run(t, d, d.dir, time.Second)
	r.until("all", func() bool { return d.tracker.Counts().Services == 10000 })
	time.Sleep(3 * time.Second)
	before := cpu(t)
	time.Sleep(3 * time.Second)
	idle := cpu(t) - before
	t.Logf("%.1f %% of a core", float64(idle)/float64(3*time.Second)*100)
	if idle > 300*time.Millisecond {
		t.Errorf("3 s without a change cost %s of CPU", idle)
	}
	r.stop()
	d.source.notify = nil
	d.source.Look() // reads what was young when it was last read
	before = cpu(t)
	d.source.Look()
	t.Logf("a look at everything costs %s", cpu(t)-before)
}

// cpu is what this process has used.
func cpu(t *testing.T) time.Duration {
	var u syscall.Rusage
	must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
