// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"io"
	"net"
	"os"
	"testing"
)

func TestStart(t *testing.T) {
	if os.Getenv("POINTSMAN_E2E") == "" {
		t.Skip("takes half a minute, and a kube-apiserver: make e2e runs it")
	}
	c := Start(t, Options{Users: []string{"bob"}})
	c.StopServer()
	c.StartServer()
	c.Compact()
}

// TestServe has a cluster, with the controllers that moves of nodes need, for a test in a guest of
// user-mode Linux, until its standard input ends. test/uml/clustered runs it.
func TestServe(t *testing.T) {
	dir := os.Getenv("POINTSMAN_SERVE")
	if dir == "" {
		t.Skip("is for test/uml/clustered")
	}
	c := Start(t, Options{Audit: true})
	c.StartControllers("daemonset-controller", "job-controller", "garbage-collector-controller")
	l, err := net.Listen("tcp", os.Getenv("POINTSMAN_SERVE_AT"))
	if err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process, whose input ends with the guest
		_, _ = io.Copy(io.Discard, os.Stdin)
		l.Close()
	}()
	if err := c.serve(dir, l); err != nil {
		t.Fatal(err)
	}
}
