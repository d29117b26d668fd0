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
	clock   time.Time // long before the files' times, so that their age says nothing
}

func newHarness(t *testing.T) *harness {
	d := &harness{t: t, dir: t.TempDir(), tracker: track.New(nil), clock: time.Unix(1000, 0)}
	d.open(d.dir)
	return d
}

// open starts a source of that path.
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

// sees checks what the tracker serves, "service=endpoints" for each, after two more polls.
func (d *harness) sees(when string, want ...string) {
	d.t.Helper()
	d.poll()
	d.seesNow(when, want...)
}

// poll polls a second after the last time.
func (d *harness) poll() {
	d.clock = d.clock.Add(time.Second)
	d.source.poll(d.clock, nil)
}

// seesNow is sees after one more poll.
func (d *harness) seesNow(when string, want ...string) {
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

// synced reports whether the tracker has something to hand out.
func (d *harness) synced() bool {
	_, ok := d.tracker.Cursor(sdk.Description{Features: sdk.Features}).Next()
	return ok
}

// faults checks what is wrong now: a part of each fault.
func (d *harness) faults(want ...string) {
	d.t.Helper()
	got := d.source.Faults()
	if !slices.EqualFunc(got, want, func(f Fault, part string) bool { return strings.Contains(f.Error(), part) }) {
		d.t.Errorf("faults %q, want %q", got, want)
	}
}

// hears checks what was reported since the last time: a part of each notice.
func (d *harness) hears(want ...string) {
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

// both is a Service and its EndpointSlice.
func both(name, clusterIP string, addrs ...string) string {
	return serviceText(name, clusterIP) + "---\n" + sliceText(name, addrs...)
}

func TestFollowEdits(t *testing.T) {
	d := newHarness(t)
	d.write("web.yaml", both("web", "172.30.0.1", "10.0.0.1", "10.0.0.2"))
	d.write("readme.txt", "not a manifest")
	d.write(".hidden.yaml", "nor: this")
	d.seesNow("a file that may be in the middle of being written")
	if d.synced() {
		t.Error("synced by a file that was seen once")
	}
	d.seesNow("stood still", "web=10.0.0.1,10.0.0.2")
	if !d.synced() {
		t.Error("not synced")
	}
	d.write("web.yaml", both("web", "172.30.0.1", "10.0.0.1"))
	d.seesNow("written in place", "web=10.0.0.1,10.0.0.2")
	d.seesNow("stood still", "web=10.0.0.1")
	d.replace("web.yaml", both("web", "172.30.0.1", "10.0.0.3"))
	d.sees("replaced", "web=10.0.0.3")
	d.write("api.yml", serviceText("api", "172.30.0.2"))
	d.sees("a new file", "api=", "web=10.0.0.3")
	d.write("db.json", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"db"},"spec":{"clusterIP":"172.30.0.3","ports":[{"port":5432}]}}`)
	d.sees("JSON", "db=", "api=", "web=10.0.0.3") // default/db comes before ns1/api
	d.hears()
}

// What is missing is removed when two polls missed it, as a file may be in the middle of being replaced.
func TestMissing(t *testing.T) {
	d := newHarness(t)
	all := serviceText("web", "172.30.0.1") + "---\n" + serviceText("api", "172.30.0.2")
	d.write("all.yaml", all)
	d.sees("at first", "api=", "web=")
	d.remove("all.yaml")
	d.seesNow("deleted", "api=", "web=")
	d.write("all.yaml", all)
	d.sees("restored", "api=", "web=")
	d.write("all.yaml", serviceText("web", "172.30.0.1"))
	d.seesNow("without one object", "api=", "web=")
	d.seesNow("and still", "web=")
	d.write("all.yaml", "")
	d.seesNow("empty", "web=")
	d.seesNow("and still")
	d.write("all.yaml", all)
	d.sees("as before", "api=", "web=")
	d.remove("all.yaml")
	d.sees("deleted for long")
	d.hears()
}

// A file that is written all the time counts when it stands still.
func TestChangesAllTheTime(t *testing.T) {
	d := newHarness(t)
	d.write("web.yaml", both("web", "172.30.0.1", "10.0.0.1"))
	d.sees("at first", "web=10.0.0.1")
	for i := range 9 {
		d.write("web.yaml", both("web", "172.30.0.1", "10.0.0.2")+strings.Repeat("#", i))
		d.seesNow("never the same twice", "web=10.0.0.1")
	}
	d.seesNow("stood still", "web=10.0.0.2")
}

// The volume of a ConfigMap is a folder of links through a hidden link, which is replaced.
func TestConfigMap(t *testing.T) {
	d := newHarness(t)
	swap := func(version, ip string) {
		t.Helper()
		d.write(version+"/web.yaml", both("web", "172.30.0.1", ip))
		must(t, os.Symlink(version, d.path("..data_tmp")), os.Rename(d.path("..data_tmp"), d.path("..data")))
	}
	swap("..1", "10.0.0.1")
	must(t, os.Symlink("..data/web.yaml", d.path("web.yaml")))
	d.sees("at first", "web=10.0.0.1")
	swap("..2", "10.0.0.2")
	d.sees("swapped", "web=10.0.0.2")
	d.remove("..2")
	d.sees("a link to nothing", "web=10.0.0.2")
	d.hears("web.yaml: stat ")
}

func TestOneFile(t *testing.T) {
	d := newHarness(t)
	d.write("services", serviceText("web", "172.30.0.1"))
	d.open(d.path("services"))
	d.sees("a file of any name", "web=")
	d.remove("services")
	d.sees("gone: its objects stay", "web=")
	d.faults("no such file")
	d.write("services", serviceText("api", "172.30.0.2"))
	d.sees("back", "api=")
	d.faults()
}

// If the folder cannot be read, nothing changes; before it was read once, the tracker is not synced.
func TestUnreadableFolder(t *testing.T) {
	d := newHarness(t)
	d.remove("")
	d.sees("no folder")
	if d.synced() {
		t.Error("synced though nothing is known")
	}
	d.hears("SourceUnreadable: " + d.dir)
	d.write("a/web.yaml", serviceText("web", "172.30.0.1"))
	d.write("b/api.yaml", serviceText("api", "172.30.0.2"))
	must(t, os.Symlink("a", d.path("now")))
	d.open(d.path("now"))
	d.sees("the folder is a link", "web=")
	must(t, os.Symlink("b", d.path("next")), os.Rename(d.path("next"), d.path("now")))
	d.sees("to another folder", "api=")
	d.remove("b")
	d.sees("gone", "api=")
	d.sees("gone for long", "api=")
	d.faults("now: stat ")
	must(t, os.Mkdir(d.path("b"), 0o700))
	d.seesNow("there it is, still empty", "api=")
	d.write("b/db.yaml", serviceText("db", "172.30.0.3"))
	d.sees("with another file", "db=")
	d.faults()
}

// A fault removes nothing, hides no other object, and is reported once.
func TestFaultyFile(t *testing.T) {
	d := newHarness(t)
	web := both("web", "172.30.0.1", "10.0.0.1")
	bad := strings.Replace(web, "port: 80", "port: eighty", 1)
	d.write("web.yaml", web)
	d.write("api.yaml", serviceText("api", "172.30.0.2"))
	d.sees("at first", "api=", "web=10.0.0.1")
	d.write("web.yaml", bad)
	d.write("api.yaml", serviceText("api", "172.30.0.2")+"---\n"+serviceText("db", "172.30.0.3"))
	d.sees("a fault", "api=", "db=", "web=10.0.0.1")
	d.sees("and still", "api=", "db=", "web=10.0.0.1")
	d.hears(`web.yaml:1: Service ns1/web: spec.ports.port: "eighty" is no int32`)
	d.write("web.yaml", bad+"- addresses: [10.0.0.2]\n")
	d.sees("the other object is followed", "api=", "db=", "web=10.0.0.1,10.0.0.2")
	d.faults("web.yaml:1: ")
	d.write("web.yaml", "}"+web)
	d.sees("a document that is no YAML", "api=", "db=", "web=10.0.0.1")
	d.write("web.yaml", serviceText("web", "172.30.0.1"))
	d.sees("corrected: what it no longer defines is gone", "api=", "db=", "web=")
	d.faults()
	d.remove("web.yaml")
	must(t, os.Mkdir(d.path("web.yaml"), 0o700))
	d.sees("no file", "api=", "db=", "web=")
	d.faults("web.yaml: not a regular file")
}

// Of two files that define an object the first by name is used, and the other one when the first lets go.
func TestDefinedTwice(t *testing.T) {
	d := newHarness(t)
	d.write("b.yaml", both("web", "172.30.0.1", "10.0.0.2"))
	d.sees("one", "web=10.0.0.2")
	d.write("a.yaml", sliceText("web", "10.0.0.1"))
	d.sees("two", "web=10.0.0.1")
	d.hears("DefinedTwice: " + d.path("b.yaml") + ":8: EndpointSlice ns1/web-1 is also defined by " + d.path("a.yaml"))
	d.write("b.yaml", both("web", "172.30.0.1", "10.0.0.3"))
	d.sees("the second changes", "web=10.0.0.1")
	d.hears()
	d.remove("a.yaml")
	d.sees("the first is gone", "web=10.0.0.3")
	d.faults()
}

func TestOtherKinds(t *testing.T) {
	d := newHarness(t)
	d.write("web.yaml", serviceText("web", "172.30.0.1")+"---\n{apiVersion: apps/v1, kind: Deployment}\n---\n{apiVersion: v1, kind: Pod}")
	d.sees("with others", "web=")
	d.hears("ManifestNote: " + d.path("web.yaml") + ": Deployment, Pod ignored; only Service, EndpointSlice and Node are read")
	d.faults()
}

// TestRun has no poll but the first: it sees what is there, and the kernel reports files that are renamed.
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
