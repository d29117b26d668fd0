// SPDX-License-Identifier: Apache-2.0

package cluster

import "testing"

func TestStart(t *testing.T) {
	c := Start(t, Options{Users: []string{"bob"}})
	c.StopServer()
	c.StartServer()
	c.Compact()
}
