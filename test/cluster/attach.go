// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	vnetns "github.com/vishvananda/netns"
)

// Attached names, in the environment, the folder of a cluster that another process serves. In a
// guest of user-mode Linux an API server takes minutes to answer: test/uml/clustered has it run
// outside.
const Attached = "POINTSMAN_CLUSTER"

// IsAttached reports whether tests have a cluster that another process serves, and run in a guest.
func IsAttached() bool { return os.Getenv(Attached) != "" }

// Outside returns a folder with a program of that name, which has a test in a guest run the one of
// `make peers` outside of it, by test/uml/outside.
func Outside(t testing.TB, name string) string {
	t.Helper()
	dir := t.TempDir()
	outside, err := filepath.Abs("../uml/outside")
	if err == nil {
		err = os.Symlink(outside, filepath.Join(dir, name))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// A place is what is in the file of such a folder: where the API server is, and where its guest
// finds it.
type place struct{ URL, CA, Dir, Through string }

func (p place) file(dir string) string { return filepath.Join(dir, "cluster.json") }

// serve writes the place of c into dir, and passes on what comes in at l, until it is closed.
func (c *Cluster) serve(dir string, l net.Listener) error {
	p := place{c.URL, c.CA, c.Dir, l.Addr().String()}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	draft := p.file(dir) + ".draft"
	if err := errors.Join(os.WriteFile(draft, text, 0o600), os.Rename(draft, p.file(dir))); err != nil {
		return err
	}
	pass(l, func() (net.Conn, error) { return net.DialTimeout("tcp", c.Addr(), timeout) })
	return nil
}

// attach is Start with a cluster that another process serves. It is at the same URL here.
func attach(t testing.TB, dir string, o Options) *Cluster {
	t.Helper()
	var p place
	text, err := os.ReadFile(p.file(dir))
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		t.Fatalf("%s names no cluster: %v", Attached, err)
	}
	c := &Cluster{URL: p.URL, CA: p.CA, Dir: p.Dir, t: t, options: o, attached: true}
	l, err := net.Listen("tcp", c.Addr())
	if err != nil {
		t.Fatal(err)
	}
	var passing sync.WaitGroup
	passing.Go(func() { pass(l, func() (net.Conn, error) { return dialOutside(p.Through) }) })
	t.Cleanup(func() {
		l.Close()
		passing.Wait()
	})
	return c
}

// dialOutside dials in the network namespace of the guest's first process: the test's own has no
// way out.
func dialOutside(to string) (conn net.Conn, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := vnetns.Get()
	if err != nil {
		return nil, err
	}
	defer here.Close()
	first, err := vnetns.GetFromPid(1)
	if err == nil {
		defer first.Close()
		err = vnetns.Set(first)
	}
	if err != nil {
		return nil, fmt.Errorf("enter the namespace of process 1: %w", err)
	}
	defer func() { err = errors.Join(err, vnetns.Set(here)) }()
	return net.DialTimeout("tcp", to, timeout)
}

// pass passes connections on until l is closed, and then ends them.
func pass(l net.Listener, dial func() (net.Conn, error)) {
	var all sync.WaitGroup
	defer all.Wait()
	ended := make(chan struct{})
	defer close(ended)
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		all.Go(func() { // ends with either connection, or with l
			defer from.Close()
			to, err := dial()
			if err != nil {
				return
			}
			defer to.Close()
			done := make(chan struct{}, 2)
			for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
				all.Go(func() { // ends when one of the two is closed
					_, _ = io.Copy(way[0], way[1])
					done <- struct{}{}
				})
			}
			select {
			case <-done:
				time.Sleep(50 * time.Millisecond) // for what the other way has still to pass on
			case <-ended:
			}
		})
	}
}
