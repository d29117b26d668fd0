// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"context"
	"fmt"
	"strings"

	"github.com/pointsman/pointsman/test/eventually"
)

// listens starts a plugin without a host. The plugin answers at its pipe, and no other process can create the same pipe.
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
		args []string
		want string
	}{
		"a pipe that exists":        {[]string{"--listen", at}, "another process has the pipe"},
		"a unix socket":             {[]string{"--listen", "unix:///run/plugin.sock"}, `want a pipe, \\.\pipe\NAME`},
		"--allow-uid":               {[]string{"--listen", at + "-2", "--allow-uid", "S-1-1-0"}, "a pipe of Windows is open to this user"},
		"a pipe without a listener": {[]string{"alive", at + "-3"}, "connect to"},
	} {
		if out, exit := n.run(plugin, c.args...); exit == 0 || !strings.Contains(out, c.want) {
			n.Errorf("%s: exit %d, want %q\n%s", what, exit, c.want, out)
		}
	}
	n.write("listens.yaml", strings.Replace(settings, "userspace: {", `userspace: {address: "unix:///run/plugin.sock", `, 1))
	if out, exit := n.run("pointsman", "config", "validate", "--file-only", windowsPath(n.path("listens.yaml"))); exit == 0 || !strings.Contains(out, `on Windows a pipe such as \\.\pipe\acme`) {
		n.Errorf("a unix socket in the config: exit %d\n%s", exit, out)
	}
}
