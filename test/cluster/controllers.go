// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"path/filepath"
	"strings"
)

// StartControllers starts kube-controller-manager, which `make peers` builds, with the named controllers. It ends with the
// test.
func (c *Cluster) StartControllers(names ...string) {
	c.t.Helper()
	binary := filepath.Join(filepath.Dir(findServer(c.t)), "kube-controller-manager")
	if _, err := os.Stat(binary); err != nil {
		c.t.Skip("needs a kube-controller-manager: make peers builds one, in some minutes")
	}
	command := []string{binary, "--kubeconfig=" + c.Kubeconfig(Token(Admin), ""),
		"--controllers=" + strings.Join(names, ","), "--leader-elect=false", "--secure-port=0"}
	if c.options.Pods {
		command = append(command, "--root-ca-file="+c.CA) // for the controller that publishes the authority to Pods
	}
	p := newProcess(c.t, "kube-controller-manager", command...)
	p.start()
	c.t.Cleanup(func() {
		p.stop()
		if c.t.Failed() {
			c.t.Logf("the end of kube-controller-manager's log:\n%s", p.lastOutput())
		}
	})
}
