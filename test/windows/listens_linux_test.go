// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"context"
	"fmt"
	"strings"

	"github.com/pointsman/pointsman/test/eventually"
)

// listens: a plugin that is not started by a host is reached by its pipe, which no other process can create then.
func (n *node) listens() {
	n.Helper()
	const at = `\\.\pipe\pointsman-listens`
	plugin := "pointsman-dataplane-userspace"
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cmd, err := n.begin(ctx, "listens.log", n.loader, n.path("bin/"+plugin+".exe"), "--listen", at)
	if err != nil {
		n.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	eventually.SucceedsWithin(n, limit, "the plugin answers at its pipe", func() error {
		if out, exit := n.run(plugin, "alive", at); exit != 0 || !strings.Contains(out, "answers") {
			return fmt.Errorf("exit %d: %s", exit, out)
		}
		return nil
	})
	for what, c := range map[string]struct {
		words []string
		says  string
	}{
		"another process":    {[]string{"--listen", at}, "another process has the pipe"},
		"no pipe":            {[]string{"--listen", "unix:///run/plugin.sock"}, `want a pipe, \\.\pipe\NAME`},
		"other users":        {[]string{"--listen", at + "-2", "--allow-uid", "S-1-1-0"}, "a pipe of Windows is open to this user"},
		"a pipe of no other": {[]string{"alive", at + "-3"}, "connect to"},
	} {
		if out, exit := n.run(plugin, c.words...); exit == 0 || !strings.Contains(out, c.says) {
			n.Errorf("%s: exit %d, want %q\n%s", what, exit, c.says, out)
		}
	}
	n.write("listens.yaml", strings.Replace(settings, "userspace: {", `userspace: {address: "unix:///run/plugin.sock", `, 1))
	if out, exit := n.run("pointsman", "config", "validate", "--file-only", there(n.path("listens.yaml"))); exit == 0 || !strings.Contains(out, `want a pipe such as \\.\pipe\acme`) {
		n.Errorf("a unix socket in the config: exit %d\n%s", exit, out)
	}
}
