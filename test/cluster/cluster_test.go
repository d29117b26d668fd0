// SPDX-License-Identifier: Apache-2.0

package cluster

import (
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
