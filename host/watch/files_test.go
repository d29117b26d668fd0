// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/eventually"
)

// A harness is a folder of manifests, with the source and the tracker that follow it.
type harness struct {
	t       *testing.T
	dir     string
	source  *FileSource
	tracker *track.Tracker
	notices []string
	clock   time.Time // long before the modification times, so that no file counts as unchanged for a second at the start
}

func newHarness(t *testing.T) *harness {
	d := &harness{t: t, dir: t.TempDir(), tracker: track.New(nil), clock: time.Unix(1000, 0)}
	d.open(d.dir)
	return d
}

// open creates a source for path.
func (d *harness) open(path string) {
	d.source = Files(path, d.tracker, func(n track.Notice) { d.notices = append(d.notices, n.Reason+": "+n.Message) })
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// write writes a file in place.
func (d *harness) write(name, text string) {
	d.t.Helper()
	must(d.t, os.MkdirAll(filepath.Dir(d.path(name)), 0o700), os.WriteFile(d.path(name), []byte(text), 0o600))
}

// replace writes another file and renames it.
func (d *harness) replace(name, text string) {
	d.t.Helper()
	d.write(name+".tmp", text)
	must(d.t, os.Rename(d.path(name+".tmp"), d.path(name)))
}

func (d *harness) remove(name string) { d.t.Helper(); must(d.t, os.RemoveAll(d.path(name))) }

func (d *harness) path(name string) string { return filepath.Join(d.dir, name) }

// wantServed polls twice and compares the Services of the tracker, each as "service=endpoints".
func (d *harness) wantServed(when string, want ...string) {
	d.t.Helper()
	d.poll()
	d.wantServedNow(when, want...)
}

// poll advances the clock by a second and polls.
func (d *harness) poll() {
	d.clock = d.clock.Add(time.Second)
	d.source.poll(d.clock, nil)
}

// wantServedNow is like wantServed with one poll.
func (d *harness) wantServedNow(when string, want ...string) {
	d.t.Helper()
	d.poll()
	if got := served(d.tracker); got != strings.Join(want, " ") {
		d.t.Errorf("%s: %q, want %q", when, got, want)
	}
}

func served(t *track.Tracker) string {
	var all []string
	for s := range t.All() {
		var eps []string
		for _, ep := range s.Ports[0].Service.Cluster {
			eps = append(eps, ep.Addr.Addr().String())
		}
		all = append(all, s.Name+"="+strings.Join(eps, ","))
	}
	return strings.Join(all, " ")
}

// synced reports whether the tracker is synced.
func (d *harness) synced() bool {
	_, ok := d.tracker.Cursor(sdk.Description{Features: sdk.Features}).Next()
	return ok
}

// wantFaults compares the present faults with parts of their texts.
func (d *harness) wantFaults(want ...string) {
	d.t.Helper()
	got := d.source.Faults()
	if !slices.EqualFunc(got, want, func(f Fault, part string) bool { return strings.Contains(f.Error(), part) }) {
		d.t.Errorf("faults %q, want %q", got, want)
	}
}

// wantNotices compares the notices since its last call with parts of their texts.
func (d *harness) wantNotices(want ...string) {
	d.t.Helper()
	if !slices.EqualFunc(d.notices, want, strings.Contains) {
		d.t.Errorf("reported %q, want %q", d.notices, want)
	}
	d.notices = nil
}

func serviceText(name, clusterIP string) string {
	return strings.NewReplacer("web", name, "172.30.0.1", clusterIP).Replace(webService)
}

func sliceText(service string, addrs ...string) string {
	text := strings.ReplaceAll(webSlice, "web", service)
	text = text[:strings.Index(text, "endpoints:")] + "endpoints:\n"
	for _, a := range addrs {
		text += "- addresses: [" + a + "]\n"
	}
	return text
}

// both returns a Service and its EndpointSlice.
func both(name, clusterIP string, addrs ...string) string {
	return serviceText(name, clusterIP) + "---\n" + sliceText(name, addrs...)
}

func TestFollowEdits(t *testing.T) {
	d := newHarness(t)
	d.write("web.yaml", both("web", "172.30.0.1", "10.0.0.1", "10.0.0.2"))
	d.write("readme.txt", "not a manifest")
	d.write(".hidden.yaml", "nor: this")
	d.wantServedNow("new file")
	if d.synced() {
		t.Error("synced before the file counts")
	}
	d.wantServedNow("unchanged for a second", "web=10.0.0.1,10.0.0.2")
	if !d.synced() {
		t.Error("not synced")
	}
	d.write("web.yaml", both("web", "172.30.0.1", "10.0.0.1"))
	d.wantServedNow("written in place", "web=10.0.0.1,10.0.0.2")
	d.wantServedNow("unchanged for a second", "web=10.0.0.1")
	d.replace("web.yaml", both("web", "172.30.0.1", "10.0.0.3"))
	d.wantServed("replaced", "web=10.0.0.3")
	d.write("api.yml", serviceText("api", "172.30.0.2"))
	d.wantServed("a new file", "api=", "web=10.0.0.3")
	d.write("db.json", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"db"},"spec":{"clusterIP":"172.30.0.3","ports":[{"port":5432}]}}`)
	d.wantServed("JSON", "db=", "api=", "web=10.0.0.3") // default/db comes before ns1/api
	d.wantNotices()
}

// TestMissing checks that an object is removed when two polls have not found it, because a file may be being replaced.
func TestMissing(t *testing.T) {
	d := newHarness(t)
	all := serviceText("web", "172.30.0.1") + "---\n" + serviceText("api", "172.30.0.2")
	d.write("all.yaml", all)
	d.wantServed("first content", "api=", "web=")
	d.remove("all.yaml")
	d.wantServedNow("deleted", "api=", "web=")
	d.write("all.yaml", all)
	d.wantServed("restored", "api=", "web=")
	d.write("all.yaml", serviceText("web", "172.30.0.1"))
	d.wantServedNow("without one object", "api=", "web=")
	d.wantServedNow("still", "web=")
	d.write("all.yaml", "")
	d.wantServedNow("empty", "web=")
	d.wantServedNow("still")
	d.write("all.yaml", all)
	d.wantServed("as before", "api=", "web=")
	d.remove("all.yaml")
	d.wantServed("deleted for a second")
	d.wantNotices()
}

// TestFileThatKeepsChanging checks that a file counts only when it has been unchanged for a second.
func TestFileThatKeepsChanging(t *testing.T) {
	d := newHarness(t)
	d.write("web.yaml", both("web", "172.30.0.1", "10.0.0.1"))
	d.wantServed("first content", "web=10.0.0.1")
	for i := range 9 {
		d.write("web.yaml", both("web", "172.30.0.1", "10.0.0.2")+strings.Repeat("#", i))
		d.wantServedNow("changed again", "web=10.0.0.1")
	}
	d.wantServedNow("unchanged for a second", "web=10.0.0.2")
}

// TestConfigMap replaces the hidden link of a ConfigMap volume, through which all its links lead.
func TestConfigMap(t *testing.T) {
	d := newHarness(t)
	swap := func(version, ip string) {
		t.Helper()
		d.write(version+"/web.yaml", both("web", "172.30.0.1", ip))
		must(t, os.Symlink(version, d.path("..data_tmp")), os.Rename(d.path("..data_tmp"), d.path("..data")))
	}
	swap("..1", "10.0.0.1")
	must(t, os.Symlink("..data/web.yaml", d.path("web.yaml")))
	d.wantServed("first content", "web=10.0.0.1")
	swap("..2", "10.0.0.2")
	d.wantServed("swapped", "web=10.0.0.2")
	d.remove("..2")
	d.wantServed("a link to nothing", "web=10.0.0.2")
	d.wantNotices("web.yaml: stat ")
}

func TestOneFile(t *testing.T) {
	d := newHarness(t)
	d.write("services", serviceText("web", "172.30.0.1"))
	d.open(d.path("services"))
	d.wantServed("a file of any name", "web=")
	d.remove("services")
	d.wantServed("deleted, and the objects stay", "web=")
	d.wantFaults("no such file")
	d.write("services", serviceText("api", "172.30.0.2"))
	d.wantServed("back", "api=")
	d.wantFaults()
}

// TestUnreadableFolder checks that a folder that cannot be read changes nothing, and that the tracker is synced only after
// the folder was read.
func TestUnreadableFolder(t *testing.T) {
	d := newHarness(t)
	d.remove("")
	d.wantServed("no folder")
	if d.synced() {
		t.Error("synced without the folder")
	}
	d.wantNotices("SourceUnreadable: " + d.dir)
	d.write("a/web.yaml", serviceText("web", "172.30.0.1"))
	d.write("b/api.yaml", serviceText("api", "172.30.0.2"))
	must(t, os.Symlink("a", d.path("now")))
	d.open(d.path("now"))
	d.wantServed("the folder is a link", "web=")
	must(t, os.Symlink("b", d.path("next")), os.Rename(d.path("next"), d.path("now")))
	d.wantServed("to another folder", "api=")
	d.remove("b")
	d.wantServed("gone", "api=")
	d.wantServed("gone for long", "api=")
	d.wantFaults("now: stat ")
	must(t, os.Mkdir(d.path("b"), 0o700))
	d.wantServedNow("back, and empty", "api=")
	d.write("b/db.yaml", serviceText("db", "172.30.0.3"))
	d.wantServed("with another file", "db=")
	d.wantFaults()
}

// TestFaultyFile checks that a fault removes no object, hides no other object, and is reported once.
func TestFaultyFile(t *testing.T) {
	d := newHarness(t)
	web := both("web", "172.30.0.1", "10.0.0.1")
	bad := strings.Replace(web, "port: 80", "port: eighty", 1)
	d.write("web.yaml", web)
	d.write("api.yaml", serviceText("api", "172.30.0.2"))
	d.wantServed("first content", "api=", "web=10.0.0.1")
	d.write("web.yaml", bad)
	d.write("api.yaml", serviceText("api", "172.30.0.2")+"---\n"+serviceText("db", "172.30.0.3"))
	d.wantServed("a fault", "api=", "db=", "web=10.0.0.1")
	d.wantServed("still", "api=", "db=", "web=10.0.0.1")
	d.wantNotices(`web.yaml:1: Service ns1/web: spec.ports.port: "eighty" is no int32`)
	d.write("web.yaml", bad+"- addresses: [10.0.0.2]\n")
	d.wantServed("the object without a fault changes", "api=", "db=", "web=10.0.0.1,10.0.0.2")
	d.wantFaults("web.yaml:1: ")
	d.write("web.yaml", "}"+web)
	d.wantServed("not YAML", "api=", "db=", "web=10.0.0.1")
	d.write("web.yaml", serviceText("web", "172.30.0.1"))
	d.wantServed("corrected, and without the slice", "api=", "db=", "web=")
	d.wantFaults()
	d.remove("web.yaml")
	must(t, os.Mkdir(d.path("web.yaml"), 0o700))
	d.wantServed("no file", "api=", "db=", "web=")
	d.wantFaults("web.yaml: not a regular file")
}

// TestDefinedTwice checks that of two files that define an object the first by name is used, and then the second.
func TestDefinedTwice(t *testing.T) {
	d := newHarness(t)
	d.write("b.yaml", both("web", "172.30.0.1", "10.0.0.2"))
	d.wantServed("one", "web=10.0.0.2")
	d.write("a.yaml", sliceText("web", "10.0.0.1"))
	d.wantServed("two", "web=10.0.0.1")
	d.wantNotices("DefinedTwice: " + d.path("b.yaml") + ":8: EndpointSlice ns1/web-1 is also defined by " + d.path("a.yaml"))
	d.write("b.yaml", both("web", "172.30.0.1", "10.0.0.3"))
	d.wantServed("the second changes", "web=10.0.0.1")
	d.wantNotices()
	d.remove("a.yaml")
	d.wantServed("the first is gone", "web=10.0.0.3")
	d.wantFaults()
}

func TestOtherKinds(t *testing.T) {
	d := newHarness(t)
	d.write("web.yaml", serviceText("web", "172.30.0.1")+"---\n{apiVersion: apps/v1, kind: Deployment}\n---\n{apiVersion: v1, kind: Pod}")
	d.wantServed("with other kinds", "web=")
	d.wantNotices("ManifestNote: " + d.path("web.yaml") + ": Deployment, Pod ignored; only Service, EndpointSlice and Node are read")
	d.wantFaults()
}

// TestRun polls once, and then only when the kernel reports that a file was renamed.
func TestRun(t *testing.T) {
	d := newHarness(t)
	d.source.every = time.Hour
	old := time.Now().Add(-2 * time.Hour)
	d.write("web.yaml", both("web", "172.30.0.1", "10.0.0.1"))
	must(t, os.Chtimes(d.path("web.yaml"), old, old))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.source.Run(ctx) }()
	serves := func(want string) {
		t.Helper()
		eventually.Succeeds(t, want, func() (err error) {
			if got := served(d.tracker); got != want {
				err = fmt.Errorf("served is %q", got)
			}
			return err
		})
	}
	serves("web=10.0.0.1")
	d.replace("web.yaml", both("web", "172.30.0.1", "10.0.0.2"))
	serves("web=10.0.0.2")
	d.replace("an\nodd name.yaml", serviceText("odd", "172.30.0.9"))
	serves("odd= web=10.0.0.2")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v", err)
	}
}
