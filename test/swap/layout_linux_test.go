// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestKernelLayouts has a plugin take over from one with another layout of the tables, under
// load, and back: it makes the table anew, and no connection fails.
func TestKernelLayouts(t *testing.T) {
	for _, protect := range []string{"auto", "never"} {
		t.Run(protect, func(t *testing.T) {
			n := newNode(t, "nftables")
			n.needsLaunchedPlugins()
			n.protect = "protect: " + protect
			n.mode("nftables")
			other := n.otherLayout()
			n.start()
			l := n.newLoad()
			changes := rounds() / 2
			for range changes {
				n.otherLayoutServes(other, "classid")
				n.otherLayoutServes(programs.dir, "mark")
			}
			l.done(fmt.Sprintf("%d changes of the layout, %s", 2*changes, n.protect))
		})
	}
}

// otherLayoutServes has the plugin of a folder take over, whose slots are of this type.
func (n *node) otherLayoutServes(folder, slot string) {
	n.Helper()
	n.dataplane("nftables", folder)
	n.restartPlugin("nftables")
	if now := n.nft("list map ip pointsman endpoints"); !strings.Contains(now, slot) {
		n.Errorf("slots are not of type %s:\n%s", slot, now)
	}
	n.lists()
}

// otherLayout builds a plugin whose slots are of another type, and returns its folder.
func (n *node) otherLayout() string {
	n.Helper()
	source, err := filepath.Abs("../../plugins/internal/nftnl/set.go")
	if err != nil {
		n.Fatal(err)
	}
	text, err := os.ReadFile(source)
	if err != nil {
		n.Fatal(err)
	}
	other := regexp.MustCompile(`(\sMark\s+= Field){19, 4}`).ReplaceAllString(string(text), "${1}{23, 4}")
	if other == string(text) {
		n.Fatalf("%s says otherwise which type slots are of", source)
	}
	n.write("other.go", other)
	n.write("overlay.json", fmt.Sprintf(`{"Replace": {%q: %q}}`, source, n.path("other.go")))
	build := exec.Command("go", "build", "-tags=failpoints", "-overlay", n.path("overlay.json"), "-o", n.path("other")+"/", "./plugins/nftables/pointsman-dataplane-nftables")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		n.Fatalf("%v: %s", err, out)
	}
	return n.path("other")
}
