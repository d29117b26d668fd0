// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// A harness is a folder of manifests, with the source and the tracker that follow it.
type harness struct {
	t       *testing.T
	dir     string
	source  *FileSource
	tracker *track.Tracker
	notices []string
	clock   time.Time // the source's; long before the files', so that their age says nothing
}

func newHarness(t *testing.T) *harness {
	d := &harness{t: t, dir: t.TempDir(), tracker: track.New(nil)}
	d.clock = time.Unix(1000, 0)
	d.open(d.dir)
	return d
}

// open begins with a source of that path.
func (d *harness) open(path string) {
	d.source = Files(path, d.tracker, FileSettings{Report: func(n track.Notice) { d.notices = append(d.notices, n.Reason+": "+n.Message) }})
	d.source.now = func() time.Time { return d.clock }
}

// look looks once, an interval after the last time.
func (d *harness) look() {
	d.clock = d.clock.Add(time.Second)
	d.source.Look()
}

// write writes a file as an editor does that writes in place.
func (d *harness) write(name, text string) {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// replace writes a file as an editor does that writes aside and renames.
func (d *harness) replace(name, text string) {
	d.t.Helper()
	d.write(name+".tmp", text)
	if err := os.Rename(filepath.Join(d.dir, name+".tmp"), filepath.Join(d.dir, name)); err != nil {
		d.t.Fatal(err)
	}
}

func (d *harness) remove(name string) {
	d.t.Helper()
	if err := os.Remove(filepath.Join(d.dir, name)); err != nil {
		d.t.Fatal(err)
	}
}

// sees checks what the tracker serves after two more looks: "service=endpoints"
// for each.
func (d *harness) sees(when string, want ...string) {
	d.t.Helper()
	d.look()
	d.seesNow(when, want...)
}

// seesNow is sees after only one more look.
func (d *harness) seesNow(when string, want ...string) {
	d.t.Helper()
	d.look()
	var got []string
	for _, s := range d.tracker.Services() {
		var eps []string
		for _, ep := range s.Ports[0].Service.Cluster {
			eps = append(eps, ep.Addr.Addr().String())
		}
		got = append(got, s.Name+"="+strings.Join(eps, ","))
	}
	if !slices.Equal(got, want) {
		d.t.Errorf("%s: %q, want %q", when, got, want)
	}
}

// faults checks what is wrong now: for each file a part of what is said.
func (d *harness) faults(want ...string) {
	d.t.Helper()
	got := d.source.Faults()
	same := slices.EqualFunc(got, want, func(f Fault, part string) bool { return strings.Contains(f.Error(), part) })
	if !same {
		d.t.Errorf("faults %q, want %q", got, want)
	}
}

// hears checks what was reported since the last time.
func (d *harness) hears(want ...string) {
	d.t.Helper()
	if len(d.notices) != len(want) {
		d.t.Errorf("reported %q, want %q", d.notices, want)
	}
	for i := range min(len(want), len(d.notices)) {
		if !strings.Contains(d.notices[i], want[i]) {
			d.t.Errorf("reported %q, want %q", d.notices[i], want[i])
		}
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

func TestFollowEdits(t *testing.T) {
	d := newHarness(t)
	d.write("web.yaml", serviceText("web", "172.30.0.1")+"---\n"+sliceText("web", "10.0.0.1", "10.0.0.2"))
	d.write("readme.txt", "not a manifest")
	d.write(".hidden.yaml", "nor: this")
	d.sees("at first", "web=10.0.0.1,10.0.0.2")
	d.sees("again", "web=10.0.0.1,10.0.0.2")

	d.write("web.yaml", serviceText("web", "172.30.0.1")+"---\n"+sliceText("web", "10.0.0.1"))
	d.seesNow("an edit in place, caught in the middle or not", "web=10.0.0.1,10.0.0.2")
	d.seesNow("counts when a second look finds the same", "web=10.0.0.1")
	d.replace("web.yaml", serviceText("web", "172.30.0.1")+"---\n"+sliceText("web", "10.0.0.3"))
	d.sees("so does a rename", "web=10.0.0.3")
	d.write("api.yml", serviceText("api", "172.30.0.2"))
	d.sees("and a new file", "api=", "web=10.0.0.3")
	d.write("db.json", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"db"},"spec":{"clusterIP":"172.30.0.3","ports":[{"port":5432}]}}`)
	d.sees("and one of JSON", "db=", "api=", "web=10.0.0.3") // default/db comes before ns1/api
	d.hears()
}

// What is missing goes when it was missed for an interval.
func TestMissing(t *testing.T) {
	d := newHarness(t)
	both := serviceText("web", "172.30.0.1") + "---\n" + serviceText("api", "172.30.0.2")
	d.write("all.yaml", both)
	d.sees("at first", "api=", "web=")

	d.write("all.yaml", "")
	d.sees("empty: another command may be about to write", "api=", "web=")
	d.write("all.yaml", both)
	d.sees("written", "api=", "web=")

	d.remove("all.yaml")
	d.seesNow("deleted", "api=", "web=")
	d.write("all.yaml", both)
	d.sees("and restored", "api=", "web=")

	d.write("all.yaml", serviceText("web", "172.30.0.1"))
	d.sees("half of it", "api=", "web=")
	d.seesNow("and still half", "web=")

	d.write("all.yaml", "")
	d.sees("empty", "web=")
	d.seesNow("and still")

	d.write("all.yaml", both)
	d.sees("all back, the same as before", "api=", "web=")
	d.remove("all.yaml")
	d.seesNow("gone", "api=", "web=")
	d.seesNow("and still gone")
	d.hears()
}

// A file caught half-written counts neither at the start nor later.
func TestHalfWritten(t *testing.T) {
	d := newHarness(t)
	c := d.tracker.Cursor(sdk.Description{Features: sdk.Features})
	whole := serviceText("web", "172.30.0.1") + "---\n" + sliceText("web", "10.0.0.1", "10.0.0.2")
	half := strings.TrimSuffix(whole, "- addresses: [10.0.0.2]\n")
	d.write("web.yaml", serviceText("web", "172.30.0.1"))
	d.seesNow("half at the first look")
	if _, ok := c.Next(); ok {
		t.Error("synced by a file that was seen once")
	}
	d.write("web.yaml", whole)
	d.seesNow("whole at the second")
	d.seesNow("and at the third", "web=10.0.0.1,10.0.0.2")
	if u, ok := c.Next(); !ok || !u.Full {
		t.Errorf("not synced: %v %+v", ok, u)
	}
	for range 3 {
		d.write("web.yaml", half)
		d.seesNow("half", "web=10.0.0.1,10.0.0.2")
		d.write("web.yaml", whole)
		d.seesNow("whole", "web=10.0.0.1,10.0.0.2")
	}
	d.hears()
	for i := range 9 {
		d.write("web.yaml", half+strings.Repeat("#", i))
		d.seesNow("never the same twice", "web=10.0.0.1,10.0.0.2")
	}
	d.hears("web.yaml:1: it is written to again and again")
	d.faults("web.yaml:1: it is written to again and again")
	d.write("web.yaml", whole)
	d.seesNow("as it was", "web=10.0.0.1,10.0.0.2")
	d.faults()
}

// A ConfigMap in a volume is a folder of links into a hidden folder, which is
// swapped by renaming a link.
func TestConfigMapSwap(t *testing.T) {
	d := newHarness(t)
	link := func(old, name string) {
		if err := os.Symlink(old, filepath.Join(d.dir, name)); err != nil {
			t.Skipf("needs symbolic links: %v", err)
		}
	}
	fill := func(version, text string) {
		if err := os.Mkdir(filepath.Join(d.dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		d.write(filepath.Join(version, "web.yaml"), text)
	}
	fill("..1", serviceText("web", "172.30.0.1")+"---\n"+sliceText("web", "10.0.0.1"))
	link("..1", "..data")
	link(filepath.Join("..data", "web.yaml"), "web.yaml")
	d.sees("at first", "web=10.0.0.1")
	fill("..2", serviceText("web", "172.30.0.1")+"---\n"+sliceText("web", "10.0.0.2"))
	link("..2", "..data_tmp")
	if err := os.Rename(filepath.Join(d.dir, "..data_tmp"), filepath.Join(d.dir, "..data")); err != nil {
		t.Fatal(err)
	}
	d.sees("swapped", "web=10.0.0.2")
	d.hears()
}

func TestOneFile(t *testing.T) {
	d := newHarness(t)
	d.write("services", serviceText("web", "172.30.0.1"))
	d.open(filepath.Join(d.dir, "services"))
	d.sees("a file of any name", "web=")
	d.remove("services")
	d.sees("gone", "web=")
	d.sees("for long: what it said stays", "web=")
}

// Many edits in the same moment, of the same length: the hash tells them apart.
func TestSameSizeSameTime(t *testing.T) {
	d := newHarness(t)
	name := filepath.Join(d.dir, "web.yaml")
	state := time.Now()
	for _, ip := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"} {
		d.write("web.yaml", serviceText("web", "172.30.0.1")+"---\n"+sliceText("web", ip))
		if err := os.Chtimes(name, state, state); err != nil {
			t.Fatal(err)
		}
		d.sees(ip, "web="+ip)
	}
}

// A document that stays as it is is not read again, and its object not passed on.
func TestUntouchedDocumentsAreNotReadAgain(t *testing.T) {
	web, api := serviceText("web", "172.30.0.1"), serviceText("api", "172.30.0.2")
	_, parts := parse("m.yaml", []byte(web+"---\n"+api), nil)
	m, _ := parse("m.yaml", []byte("# a line more\n"+web+"---\n"+strings.Replace(api, "80", "81", 1)+"---\n"+api), parts)
	var values []bool
	for _, o := range m.Objects {
		values = append(values, o.value != nil)
	}
	if !slices.Equal(values, []bool{true, true}) {
		t.Errorf("read: %v", values)
	}
	m, _ = parse("m.yaml", []byte(web+"---\n"+api), parts)
	if m.Objects[0].value != nil || m.Objects[1].value != nil || m.Objects[1].Line != 9 {
		t.Errorf("read again: %+v", m.Objects)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	d := newHarness(t)
	d.write("web.yaml", serviceText("web", "172.30.0.1"))
	d.source.settings.Interval = time.Millisecond
	d.source.now = time.Now
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.source.Run(ctx) }()
	c := d.tracker.Cursor(sdk.Description{Features: sdk.Features})
	deadline := time.After(30 * time.Second)
	for changed := false; !changed; _, changed = c.Next() {
		select {
		case <-c.Changed():
		case <-deadline:
			t.Fatal("nothing was handed out")
		}
	}
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	case <-deadline:
		t.Fatal("Run did not end")
	}
}

// TestEmptiedFile: after its writer has closed it a file counts soon, but not an empty one: the
// next writer may have emptied it, which the kernel reports later.
func TestEmptiedFile(t *testing.T) {
	now := time.Unix(1000, 0)
	for text, want := range map[string]time.Duration{"content": quick, "": time.Second} {
		seen := found{hash: sha256.Sum256([]byte(text))}
		f := &file{known: true, event: closed}
		f.draft = f.draft.next(seen.hash, now)
		if f.complete(seen, now.Add(want-1), time.Second) || !f.complete(seen, now.Add(want), time.Second) {
			t.Errorf("%q does not count after %s, or before", text, want)
		}
	}
}
