// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/actor"
	"github.com/pointsman/pointsman/test/eventually"
)

func TestLaunchAndStop(t *testing.T) {
	dir := shortDir(t)
	r, err := part("serve", dir).launch(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if h := r.Hello(); h.Name != "subject" || h.Version != "0.0.1" || h.PID != r.child.PID() {
		t.Errorf("hello is %+v", h)
	}
	d, err := r.Configure(soon(t), sdk.Setup{})
	if err != nil || len(d.Features) != 1 {
		t.Errorf("Configure: %v, %v; want the narrowed description", d, err)
	}
	if _, err := r.Sync(soon(t), full(3)); err != nil {
		t.Error(err)
	}
	if err := r.SetRole(soon(t), sdk.Active); err != nil {
		t.Error(err)
	}
	v, err := r.Vitals(soon(t))
	if err != nil || v.Revision != 3 || v.Role != sdk.Active || v.Progress != 7 || v.Waiting != "the lock" || v.SwapImpact != "2 flows" || v.Notes[0] != "a chain drops" || v.Memory == 0 || v.Samples[0].Labels["a"] != "b" {
		t.Errorf("vitals are %+v, %v", v, err)
	}
	if want := (&actor.Dataplane{}).Report().Histograms; !reflect.DeepEqual(v.Histograms, want) {
		t.Errorf("histograms are %+v, want %+v", v.Histograms, want)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 { // so nothing is left even if both are killed
		t.Errorf("%s are there while it runs", left)
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	if how := r.Ending(); how != "exited with code 0" {
		t.Errorf("it %s; want an orderly end", how)
	}
	if err := r.Stop(); err != nil {
		t.Errorf("a second Stop: %v", err)
	}
}

// A process that is up outlives the context of its launch.
func TestLaunchOutlivesItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(soon(t))
	r, err := part("serve", shortDir(t)).launch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Stop()
	cancel()
	configured(t, r, order{})
	for revision := range uint64(100) {
		if _, err := r.Sync(soon(t), full(revision+1)); err != nil {
			t.Fatalf("after the context of its launch ended: %v; it %s", err, r.Ending())
		}
	}
}

// A failed launch reports its cause, and leaves no process.
func TestLaunchFails(t *testing.T) {
	dir := shortDir(t)
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	foreign := "POINTSMAN_TEST_CERT=" + base64.RawStdEncoding.EncodeToString(someCertificate(t))
	impatient := part("no-handshake", dir)
	impatient.timeout = 3 * time.Second
	deep := part("serve", filepath.Join(dir, strings.Repeat("deep", 30)))
	tests := []struct {
		name  string
		start start
		want  []string
	}{
		{"missing", start{Plugin: Plugin{Path: dir + "/nothing"}}, []string{"no such file", "install the plugin"}},
		{"a directory", start{Plugin: Plugin{Path: dir}}, []string{"it is a directory"}},
		{"not executable", start{Plugin: Plugin{Path: write("plain", "x", 0o644)}}, []string{"not executable", "chmod +x"}},
		{"no program", start{Plugin: Plugin{Path: write("text", "x", 0o755)}}, []string{"not a program for this machine"}},
		{"no interpreter", start{Plugin: Plugin{Path: write("script", "#!/no/such/shell\n", 0o755)}}, []string{"interpreter"}},
		{"not a plugin", start{Plugin: Plugin{Path: "/bin/true"}}, []string{"exited with code 0", "wire.Serve"}},
		{"exits", part("exits", dir), []string{"exited with code 3", "/dev/null0", "wire.Serve"}},
		{"panics", part("panics", dir), []string{"exited with code 2", "panic: the ruleset is broken"}},
		{"no handshake", impatient, []string{"timeout", "thinking"}},
		{"other output on stdout", part("rubbish-stdout", dir), []string{"starting up…", "prints nothing to stdout before"}},
		{"a long line on stdout", part("long-stdout", dir), []string{"xxx", "prints nothing to stdout before"}},
		{"another major", part("major-2", dir), []string{"incompatible API version with plugin. Plugin version: 2"}},
		{"an invalid certificate", part("junk-cert", dir), []string{"parsing server cert"}},
		{"no certificate", part("no-cert", dir), []string{"has no certificate"}},
		{"somebody's certificate", part("foreign-cert", dir, foreign), []string{"/nowhere/at/all"}},
		{"a child keeps its stderr open", part("leaves-tool", dir), []string{"exited with code 3"}},
		{"ends in Hello", part("ends-in-hello", dir), []string{"ask the plugin what it is"}},
		{"stops in Hello", part("stops-in-hello", dir), []string{"ask the plugin what it is"}},
		{"a socket directory with too long a path", deep, []string{"use a shorter one"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if runtime.GOOS != "linux" && test.start.Path != os.Args[0] {
				t.Skip("needs linux: the kernel's words for it differ elsewhere")
			}
			r, err := test.start.launch(soon(t))
			if err == nil {
				r.Stop()
				t.Fatal("it came up")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error lacks %q:\n%s", want, err)
				}
			}
			if len(err.Error()) > 10<<10 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "plugin-dir*")); len(left) > 0 {
		t.Errorf("%s were left behind", left)
	}
	if left := children(); len(left) > 0 {
		for _, pid := range left {
			cmd, _ := os.ReadFile("/proc/" + pid + "/stat")
			t.Errorf("process %s was left behind: %s", pid, cmd)
		}
	}
}

// someCertificate returns a certificate in DER.
func someCertificate(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func TestLaunchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_, err := part("no-handshake", shortDir(t)).launch(ctx)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v; want that the deadline passed", err)
	}
}

// A plugin inherits only the listed variables of the host's environment, and not its terminal.
func TestLaunchKeepsItsEnvironment(t *testing.T) {
	t.Setenv("KUBECONFIG", "/secret")
	t.Setenv("TZ", "UTC")
	t.Setenv("XTABLES_LOCKFILE", "/elsewhere/lock") // must be the same for all programs of a node
	r, err := part("serve", shortDir(t), "MINE=1").launch(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Stop()
	env := procFile(t, r.Hello().PID, "environ")
	if strings.Contains(env, "KUBECONFIG") || !strings.Contains(env, "TZ=UTC\x00") || !strings.Contains(env, "XTABLES_LOCKFILE=/elsewhere/lock\x00") || !strings.Contains(env, "MINE=1\x00") {
		t.Errorf("the environment is\n%s", env)
	}
	if in, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", r.Hello().PID)); err != nil || !strings.HasPrefix(in, "pipe:") {
		t.Errorf("its stdin is %s, %v; want a pipe", in, err)
	}
}

// Many launches leave no goroutine, no file descriptor and no zombie behind.
func TestLaunchLeaksNothing(t *testing.T) {
	cycle := func() {
		r, err := part("serve", shortDir(t)).launch(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		configured(t, r, order{})
		if err := r.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	cycle()
	before := descriptors(t)
	ignore := goleak.IgnoreCurrent()
	for range 20 {
		cycle()
	}
	eventually.True(t, "there are no more goroutines than before", func() bool {
		err := goleak.Find(ignore)
		if err != nil {
			t.Log(err)
		}
		return err == nil
	})
	eventually.True(t, "there are no more file descriptors than before", func() bool { return descriptors(t) <= before })
}

func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("needs /proc: ", err)
	}
	return len(open)
}

// children returns the child processes of this process, zombies too; none if there is no /proc.
func children() (pids []string) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if fields[1] == strconv.Itoa(os.Getpid()) {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}

func procFile(t *testing.T, pid int, name string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil {
		t.Skip("needs /proc: ", err)
	}
	return string(text)
}
