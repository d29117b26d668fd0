// SPDX-License-Identifier: Apache-2.0

package breakage

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/built"
)

func TestMain(m *testing.M) { netns.Main(tidy{m}) }

// tidy removes what the tests have built.
type tidy struct{ *testing.M }

func (t tidy) Run() int {
	code := t.M.Run()
	if os.Getenv("POINTSMAN_BIN") == "" {
		if dir, err := binaries(); err == nil {
			_ = os.RemoveAll(dir)
		}
	}
	return code
}

// dataplanes are those that a node has, if its kernel does.
var dataplanes = []string{"iptables", "userspace", "nftables", "ipvs"}

// binaries is the folder with the binaries, which have failpoints if they were built here.
var binaries = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("POINTSMAN_BIN"); dir != "" {
		return dir, nil
	}
	dir, err := os.MkdirTemp("", "breakage-bin")
	if err != nil {
		return "", err
	}
	packages := []string{"./host/pointsman"}
	for _, name := range dataplanes {
		packages = append(packages, "./plugins/"+name+"/"+plugin(name))
	}
	return dir, built.Into(dir, "failpoints", packages...)
})

// plugin is the name of a dataplane's binary.
func plugin(mode string) string { return "pointsman-dataplane-" + mode }

// install puts a binary in place: a link, or a copy where there is something to replace.
func (n *node) install(name, to string) {
	n.Helper()
	dir, err := binaries()
	if err != nil {
		n.Fatal(err)
	}
	from := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(n.path(to)), 0o755); err != nil {
		n.Fatal(err)
	}
	if err := built.Place(from, n.path(to)); err != nil {
		n.Fatal(err)
	}
}
