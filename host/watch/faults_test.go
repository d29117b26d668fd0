// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// A file with a fault takes nothing away, hides no other, and is complained of
// once.
func TestFaultyFile(t *testing.T) {
	d := newHarness(t)
	web := serviceText("web", "172.30.0.1") + "---\n" + sliceText("web", "10.0.0.1")
	d.write("web.yaml", web)
	d.write("api.yaml", serviceText("api", "172.30.0.2"))
	d.sees("at first", "api=", "web=10.0.0.1")

	d.write("web.yaml", strings.Replace(web, "port: 80", "port: eighty", 1))
	d.write("api.yaml", serviceText("api", "172.30.0.2")+"---\n"+serviceText("db", "172.30.0.3"))
	d.sees("a fault", "api=", "db=", "web=10.0.0.1")
	d.hears("web.yaml:7: spec.ports.port: here should be a number, not a string")
	d.sees("a second look", "api=", "db=", "web=10.0.0.1")
	d.hears()

	d.write("web.yaml", strings.Replace(web, "port: 80", "port: eighty", 1)+"- addresses: [10.0.0.2]\n")
	d.sees("what is right in it is followed", "api=", "db=", "web=10.0.0.1,10.0.0.2")
	d.write("web.yaml", "}"+web)
	d.sees("a document that is no YAML", "api=", "db=", "web=10.0.0.1")
	d.sees("for long", "api=", "db=", "web=10.0.0.1")
	d.write("web.yaml", serviceText("web", "172.30.0.1"))
	d.sees("mended", "api=", "db=", "web=10.0.0.1")
	d.seesNow("and what it no longer says is gone", "api=", "db=", "web=")
}

func TestUnreadableFile(t *testing.T) {
	d := newHarness(t)
	d.write("web.yaml", serviceText("web", "172.30.0.1"))
	d.sees("at first", "web=")
	d.remove("web.yaml")
	if err := os.Mkdir(filepath.Join(d.dir, "web.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	d.sees("something that cannot be read", "web=")
	d.sees("for long", "web=")
	d.hears("it is no regular file; what it said stays in force")
}

// When the folder itself cannot be read nothing changes, and before it has been
// read once the tracker is not synced.
func TestUnreadableFolder(t *testing.T) {
	d := newHarness(t)
	c := d.tracker.Cursor(sdk.Description{Features: sdk.Features})
	if err := os.Remove(d.dir); err != nil {
		t.Fatal(err)
	}
	d.sees("no folder")
	d.sees("no folder")
	d.hears("what it said stays in force")
	if _, ok := c.Next(); ok {
		t.Error("an update though nothing is known")
	}
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d.write("web.yaml", serviceText("web", "172.30.0.1"))
	d.sees("there it is", "web=")
	if u, ok := c.Next(); !ok || !u.Full || len(u.Set) != 1 {
		t.Errorf("update %v %+v", ok, u)
	}
	if err := os.RemoveAll(d.dir); err != nil {
		t.Fatal(err)
	}
	d.sees("gone", "web=")
	d.sees("gone for long", "web=")
}

// Of two files that define one object the first by name wins, and the other takes
// over when the first lets go.
func TestDefinedTwice(t *testing.T) {
	d := newHarness(t)
	d.write("b.yaml", sliceText("web", "10.0.0.2")+"---\n"+serviceText("web", "172.30.0.1"))
	d.sees("one", "web=10.0.0.2")
	d.write("a.yaml", sliceText("web", "10.0.0.1"))
	d.sees("two", "web=10.0.0.1")
	d.hears("b.yaml:1: EndpointSlice ns1/web-1: " + filepath.Join(d.dir, "a.yaml") + " defines it too, and that one is used")
	d.faults("b.yaml:1: EndpointSlice ns1/web-1: ")
	d.write("b.yaml", sliceText("web", "10.0.0.3")+"---\n"+serviceText("web", "172.30.0.1"))
	d.sees("the second changes", "web=10.0.0.1")
	d.hears()
	d.remove("a.yaml")
	d.sees("the first is gone", "web=10.0.0.3")
	d.faults()
}

// A fault is shown as long as it lasts, and no longer.
func TestFaultsAreShownWhileTheyLast(t *testing.T) {
	d := newHarness(t)
	d.write("web.yaml", serviceText("web", "172.30.0.1"))
	d.sees("right", "web=")
	d.faults()
	d.write("web.yaml", serviceText("web", "172.30.0.1")+"---\nkind: [\n")
	d.write("api.yaml", "kind: Service\n")
	d.sees("wrong", "web=")
	d.faults("api.yaml:1: ", "web.yaml:")
	d.remove("api.yaml")
	d.write("web.yaml", serviceText("web", "172.30.0.1"))
	d.sees("right again", "web=")
	d.faults()
	if err := os.RemoveAll(d.dir); err != nil {
		t.Fatal(err)
	}
	d.sees("gone", "web=")
	d.faults(": ")
}

func TestSliceOfNoService(t *testing.T) {
	d := newHarness(t)
	d.write("web.yaml", sliceText("wbe", "10.0.0.1")+"---\n"+serviceText("web", "172.30.0.1"))
	d.sees("a wrong label", "web=")
	d.sees("a wrong label", "web=")
	d.hears("label kubernetes.io/service-name says ns1/wbe, and no file defines that Service")
}
