// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"path/filepath"
	"strings"
)

// StartControllers starts kube-controller-manager, which `make peers` builds, with some of its controllers, until the
// test ends.
func (c *Cluster) StartControllers(names ...string) {
	c.t.Helper()
	binary := filepath.Join(filepath.Dir(find(c.t)), "kube-controller-manager")
	if _, err := os.Stat(binary); err != nil {
		c.t.Skip("needs a kube-controller-manager: make peers builds one, in some minutes")
	}
	command := []string{binary, "--kubeconfig=" + c.Kubeconfig(Token(Admin), ""),
		"--controllers=" + strings.Join(names, ","), "--leader-elect=false", "--secure-port=0"}
	if c.options.Pods {
		command = append(command, "--root-ca-file="+c.CA) // for the controller that publishes it
	}
	p := newProcess(c.t, "kube-controller-manager", c.options.Wrap, command...)
	p.start()
	c.t.Cleanup(func() {
		p.stop()
		if c.t.Failed() {
			c.t.Logf("the last words of kube-controller-manager:\n%s", p.words())
		}
	})
}
