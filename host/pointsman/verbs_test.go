// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/plane"
)

// do runs pointsman with these arguments.
func do(t *testing.T, words ...string) (exit int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	exit = execute(words, &out, &errs)
	return exit, out.String(), errs.String()
}

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestExits(t *testing.T) {
	dir := t.TempDir()
	good := write(t, filepath.Join(dir, "good.yaml"), "apiVersion: pointsman.dev/v1alpha1\nkind: HostConfig\nmode: userspace\nsource: {files: {path: .}}\npluginDirs: [.]\n", 0o600)
	bad := write(t, filepath.Join(dir, "bad.yaml"), "apiVersion: pointsman.dev/v1alpha1\nkind: HostConfig\nmoed: userspace\n", 0o600)
	elsewhere := write(t, filepath.Join(dir, "elsewhere.yaml"), "apiVersion: pointsman.dev/v1alpha1\nkind: HostConfig\nplugins:\n  userspace:\n    address: acme.sock\n", 0o600)
	cluster := write(t, filepath.Join(dir, "cluster.yaml"), "apiVersion: pointsman.dev/v1alpha1\nkind: HostConfig\nmode: userspace\nsource:\n  kubernetes: {kubeconfig: kubeconfig}\n", 0o600)
	write(t, filepath.Join(dir, "kubeconfig"), "apiVersion: v1\nkind: Config\nclusters: {}\n", 0o600)
	fakePlugin(t, dir, "userspace", `echo '{"runs":true}'`)
	nobody := filepath.Join(dir, "nobody.sock")
	for _, c := range []struct {
		words  string
		exit   int
		stdout string // a part of it
		stderr string
	}{
		{"", exitOK, "pointsman [command]", ""},
		{"version", exitOK, "wire major 1", ""},
		{"version -o json", exitOK, `"kind": "Version"`, ""},
		{"version -o json", exitOK, `"kubernetes": "v0.`, ""},
		{"version -o xml", exitUsage, "", "want table, json or yaml"},
		{"version now", exitUsage, "", `unknown command "now" for "pointsman version"; try: pointsman version --help`},
		{"statuss", exitUsage, "", `unknown command "statuss" for "pointsman" (did you mean status?); try: pointsman --help`},
		{"plugin lsit", exitUsage, "", "(did you mean list?); try: pointsman plugin --help"},
		{"plugin info", exitUsage, "", "accepts 1 arg(s), received 0; try: pointsman plugin info --help"},
		{"run --modus userspace", exitUsage, "", "unknown flag: --modus; try: pointsman run --help"},
		{"status --admin-socket " + nobody, exitUnreachable, "", "there is no socket " + nobody},
		{"config show --running --admin-socket " + nobody, exitUnreachable, "", "no host answers"},
		{"explain node 10.96.0.1:80 --admin-socket " + nobody, exitUnreachable, "", "there is no socket " + nobody},
		{"explain", exitUsage, "", "accepts 2 arg(s)"},
		{"explain --watch --admin-socket " + nobody, exitUnreachable, "", "there is no socket " + nobody},
		{"explain --watch node", exitUsage, "", "accepts 2 arg(s)"},
		{"explain --watch --for 11m", exitUsage, "", "--for: want a time up to 10m, not 11m0s"},
		{"explain --watch -o json", exitUsage, "", "--watch prints lines"},
		{"explain web 10.96.0.1:80", exitUsage, "", "is not a caller"},
		{"config validate " + good, exitOK, "is good: mode userspace", ""},
		{"config validate --config " + good, exitOK, "is good: mode userspace", ""},
		{"config validate --plugin-dir " + dir + "/none " + cluster, exitFailed, "", "cluster.yaml: mode: there is no pointsman-dataplane-userspace in " + dir + "/none"},
		{"config validate " + bad, exitFailed, "", "bad.yaml: moed: unknown field; try: pointsman config defaults"},
		{"config validate " + filepath.Join(dir, "none.yaml"), exitFailed, "", "none.yaml"},
		{"config validate " + elsewhere, exitFailed, "", "elsewhere.yaml: plugins.userspace.address: want a socket"},
		{"config validate " + cluster, exitFailed, "", "cluster.yaml: source.kubernetes.kubeconfig: read kubeconfig " + filepath.Join(dir, "kubeconfig")},
		{"config validate --file-only " + cluster, exitOK, "detectLocal.clusterCIDRs: is empty", ""},
		{"run --config " + bad, exitFailed, "", "bad.yaml: moed"},
		{"run --config " + good + " --mode acme --state-dir " + dir + "/state --admin-socket " + nobody, exitUsage, "", "no plugin is installed"},
		{"service show web", exitUsage, "", "want NAMESPACE/NAME"},
		{"events --since -1s", exitUsage, "", "--since: want a time such as 10m"},
		{"events -f -o json", exitUsage, "", "--follow prints lines"},
		{"config defaults", exitOK, "minSyncPeriod: ", ""},
		{"config show --config " + good + " --mode acme -o json", exitOK, `"acme"`, ""},
	} {
		exit, stdout, stderr := do(t, strings.Fields(c.words)...)
		if exit != c.exit || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) {
			t.Errorf("pointsman %s: exit %d, want %d\nstdout %q, want %q\nstderr %q, want %q", c.words, exit, c.exit, stdout, c.stdout, stderr, c.stderr)
		}
	}
}

// TestStatusWithInvalidConfig: an invalid config file does not prevent a user from querying the host.
func TestStatusWithInvalidConfig(t *testing.T) {
	dir := t.TempDir()
	bad := write(t, filepath.Join(dir, "bad.yaml"), "moed: x\n", 0o600)
	exit, _, stderr := do(t, "status", "--config", bad, "--admin-socket", filepath.Join(dir, "a.sock"))
	if exit != exitUnreachable || !strings.Contains(stderr, "config validate") {
		t.Errorf("exit %d: %s", exit, stderr)
	}
}

// fakePlugin writes a plugin that is a shell script, for the verbs that a user can run.
func fakePlugin(t *testing.T, dir, name, script string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell script for a plugin")
	}
	write(t, filepath.Join(dir, launch.Prefix+name), "#!/bin/sh\n"+script, 0o755)
}

func TestPluginsWithoutAHost(t *testing.T) {
	dir := t.TempDir()
	fakePlugin(t, dir, "acme", `echo '{"name":"acme","version":"7","features":["ipv4"],"limits":["no-drop"],"options":{"properties":{
"depth":{"type":"integer","default":2,"description":"how deep"},"mode":{"enum":["a","b"],"x-pointsman-fixed":true},"any":{}}}}'`)
	fakePlugin(t, dir, "broken", "exit 3")
	where := []string{"--plugin-dir", dir, "--admin-socket", filepath.Join(dir, "a.sock")}
	exit, stdout, stderr := do(t, append([]string{"plugin", "list", "-o", "json"}, where...)...)
	var list admin.PluginList
	if err := json.Unmarshal([]byte(stdout), &list); err != nil || exit != exitOK {
		t.Fatalf("exit %d, %v: %s%s", exit, err, stdout, stderr)
	}
	states := make(map[string]string)
	for _, p := range list.Items {
		states[p.Name] = p.State + " " + p.Version + " " + p.Why
	}
	if states["acme"] != "unused 7 " || !strings.Contains(states["broken"], "describe: exit status 3") {
		t.Errorf("listed %q", states)
	}
	if exit, stdout, _ := do(t, append([]string{"plugin", "info", "acme"}, where...)...); exit != exitOK || !strings.Contains(stdout, "no-drop") ||
		!strings.Contains(stdout, "options   any: any value\n          depth: integer, default 2 - how deep\n          mode: one of [a b], fixed while it serves\n") {
		t.Errorf("info: exit %d: %s", exit, stdout)
	}
	if exit, stdout, _ := do(t, append(append([]string{"__complete"}, where...), "plugin", "info", "")...); exit != exitOK || stdout != "acme\nbroken\n:0\n" {
		t.Errorf("completion: exit %d: %s", exit, stdout)
	}
	for _, verb := range []string{"info", "check"} {
		for name, says := range map[string]string{
			"nobody":                        "no plugin nobody in pluginDirs: there is acme, broken; try: pointsman plugin list",
			filepath.Join(dir, "elsewhere"): "there is no such file",
		} {
			if exit, _, stderr := do(t, append([]string{"plugin", verb, name}, where...)...); exit != exitFailed || !strings.Contains(stderr, says) {
				t.Errorf("%s %s: exit %d: %s", verb, name, exit, stderr)
			}
		}
	}
	if exit, stdout, _ := do(t, "plugin", "info", filepath.Join(dir, launch.Prefix+"acme")); exit != exitOK || !strings.Contains(stdout, "acme") || !strings.Contains(stdout, "no-drop") {
		t.Errorf("info of a path: exit %d: %s", exit, stdout)
	}
}

// TestPluginCheck runs the check of a plugin by its name, by its path, and by the configured mode. The exit status
// is the result.
func TestPluginCheck(t *testing.T) {
	dir := t.TempDir()
	fakePlugin(t, dir, "acme", `[ "$4 $5" = '--options {"depth":2}' ] || { echo '{"runs":false,"why":"'"$1 $#"' words"}'; exit 1; }
echo '{"runs":true,"version":"7","lacks":["it does not serve ipv6"],"notes":["a chain drops"]}'`)
	file := write(t, filepath.Join(dir, "host.yaml"), "apiVersion: pointsman.dev/v1alpha1\nkind: HostConfig\nmode: acme\npluginDirs: ["+dir+"]\nsource: {files: {path: .}}\nplugins: {acme: {options: {depth: 2}}}\n", 0o600)
	auto := write(t, filepath.Join(dir, "auto.yaml"), "apiVersion: pointsman.dev/v1alpha1\nkind: HostConfig\nmode: auto\nsource: {files: {path: .}}\n", 0o600)
	path := filepath.Join(dir, launch.Prefix+"acme")
	const runs, not = "this node can run acme 7\n  but here it does not serve ipv6\n  note: a chain drops\n", "this node cannot run acme: check"
	for _, c := range []struct {
		words          []string
		exit           int
		stdout, stderr string
	}{
		{[]string{"acme", "--config", file}, exitOK, runs, ""},
		{[]string{"acme", "--config", file, "--options", `{}`}, exitFailed, not, ""},
		{[]string{path, "--options", `{"depth":2}`}, exitOK, runs, ""},
		{[]string{path}, exitFailed, not, ""},
		{[]string{path, "-o", "json"}, exitFailed, `"runs": false`, ""},
		{[]string{"acme", "--config", file, "-o", "yaml"}, exitOK, "kind: Check\n", ""},
		{[]string{"--config", file}, exitOK, runs, ""},
		{[]string{"--config", auto}, exitUsage, "", "mode auto names no plugin; try: pointsman plugin check NAME"},
		{[]string{"acme", "more"}, exitUsage, "", "accepts at most 1 arg(s), received 2"},
	} {
		exit, stdout, stderr := do(t, append([]string{"plugin", "check"}, c.words...)...)
		if exit != c.exit || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) {
			t.Errorf("check %q: exit %d, want %d\nstdout %q, want %q\nstderr %q, want %q", c.words, exit, c.exit, stdout, c.stdout, stderr, c.stderr)
		}
	}
}

// TestModesInUse: cleanup skips the serving mode, and during a swap the next or the draining mode.
func TestModesInUse(t *testing.T) {
	if got := modesInUse(admin.Status{Mode: "ipvs"}); !slices.Equal(got, []string{"ipvs"}) {
		t.Errorf("at rest: %q", got)
	}
	got := modesInUse(admin.Status{Mode: "iptables", Swap: &admin.Swap{From: "ipvs", To: "iptables"}})
	if !slices.Contains(got, "ipvs") || !slices.Contains(got, "iptables") {
		t.Errorf("in a swap: %q", got)
	}
}

// TestIsNoHost distinguishes a host that does not run from a host that does not answer in time.
func TestIsNoHost(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{fmt.Errorf("%w: there is no socket", admin.ErrUnreachable), true},
		{fmt.Errorf("%w on /s: %w", admin.ErrUnreachable, context.DeadlineExceeded), false},
		{&admin.Error{What: "GET /v1/status: 500"}, false},
	} {
		if got := isNoHost(c.err); got != c.want {
			t.Errorf("%v: %t, want %t", c.err, got, c.want)
		}
	}
}

// TestCleanup runs the cleanup of each plugin, also after one fails.
func TestCleanup(t *testing.T) {
	dir := t.TempDir()
	fakePlugin(t, dir, "acme", `echo "$@"; echo two`)
	fakePlugin(t, dir, "broken", `echo why >&2; exit 1`)
	fakePlugin(t, dir, "zebra", `echo removed`)
	var out, errs bytes.Buffer
	j := &cleaner{settings: hostOf(t, "pluginDirs: ["+dir+"]\nstateDir: "+dir), kubeProxy: true, dryRun: true, inUse: modesInUse(admin.Status{Mode: "zebra"}), out: &out, errs: &errs}
	err := j.clean(t.Context())
	if err == nil || !strings.Contains(err.Error(), launch.Prefix+"broken cleanup: exit status 1") {
		t.Errorf("error %v", err)
	}
	for _, want := range []string{"acme: cleanup --kube-proxy --dry-run\nacme: two\n", "zebra: left alone, a running host uses it\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("printed %q, want %q in it", out.String(), want)
		}
	}
	if errs.String() != "broken: why\n" || strings.Contains(out.String(), "zebra: removed") {
		t.Errorf("printed %q, errors %q", out.String(), errs.String())
	}
}

// TestCleanupForgetsTheMode: after a cleanup the host starts with the mode of the config file.
func TestCleanupForgetsTheMode(t *testing.T) {
	dir := t.TempDir()
	fakePlugin(t, dir, "acme", ``)
	err := (plane.Facts{}).WithRequest("acme", "nftables", false).WithServed("acme").Write(dir)
	if err = errors.Join(err, os.MkdirAll(plane.PluginDir(dir, "acme"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, dry := range []bool{true, false} {
		j := &cleaner{settings: hostOf(t, "pluginDirs: ["+dir+"]\nstateDir: "+dir), dryRun: dry, out: io.Discard, errs: io.Discard}
		if err := j.clean(t.Context()); err != nil {
			t.Fatal(err)
		}
		facts, _ := plane.ReadFacts(dir)
		if got, want := facts.Wanted("nftables"), map[bool]string{true: "acme", false: "nftables"}[dry]; got != want {
			t.Errorf("dry run %t: the next host wants %s, want %s", dry, got, want)
		}
		if launched := plane.Launched(dir); (len(launched) > 0) != dry {
			t.Errorf("dry run %t: the next host finds that %q were launched", dry, launched)
		}
	}
}

// TestHider hides each value as a whole, also in JSON, except short and public ones.
func TestHider(t *testing.T) {
	hider := newHider([]string{"secret", "secret-of-more", `quo"ted`, "short", "public-value"}, `{"enum": ["public-value"]}`)
	if got, want := hider.Replace(`secret secret-of-more quo\"ted short public-value`), strings.Repeat(config.Hidden+" ", 3)+"short public-value"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestPluginNewRefuses: plugin new refuses invalid arguments before it writes anything.
func TestPluginNewRefuses(t *testing.T) {
	found, err := filepath.Glob("../../plugins/*/" + launch.Prefix + "*")
	if err != nil || len(found) < 4 {
		t.Fatalf("%q, %v", found, err)
	}
	dir := t.TempDir()
	t.Chdir(dir)
	for _, tc := range []struct {
		words []string
		says  string
	}{
		{[]string{"Acme"}, "lower-case letters"},
		{[]string{"a/b"}, "lower-case letters"},
		{[]string{"auto"}, "my-auto"},
		{[]string{"nftables"}, "my-nftables"},
		{[]string{"acme", "--lang", "rust"}, "go or python"},
		{[]string{"acme", "--lang", "python", "--module", "example.org/acme"}, "--module"},
		{nil, "accepts 1 arg(s)"},
	} {
		var out, errs strings.Builder
		if code := execute(append([]string{"plugin", "new"}, tc.words...), &out, &errs); code != exitUsage || !strings.Contains(errs.String(), tc.says) {
			t.Errorf("%q: exit %d, %s", tc.words, code, errs.String())
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("there is %v, %v", entries, err)
	}
	for _, path := range found {
		if name := filepath.Base(filepath.Dir(path)); !slices.Contains(ourModes, name) {
			t.Errorf("%s may be a plugin's name", name)
		}
	}
}
