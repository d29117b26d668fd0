// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

const head = "apiVersion: pointsman.dev/v1alpha1\nkind: HostConfig\n"

// write puts a host's file into a folder of its own; body is what follows the kind.
func write(t *testing.T, body string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "host.yaml")
	if err := os.WriteFile(path, []byte(head+body), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func flagSet(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	AddFlags(flags)
	AddVerbFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return flags
}

func mustLoad(t *testing.T, path string, flags *pflag.FlagSet) *Host {
	t.Helper()
	h, err := Load(path, flags)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Flag goes before environment, before file, before default; and it is known
// which it was.
func TestPrecedence(t *testing.T) {
	file := `
mode: file
logging: {level: error}
syncPeriod: 10s
nodePortAddresses: [10.0.0.0/8]
pluginDirs: [/file]
linux: {conntrack: {min: 1}}
plugins: {my-plane: {path: /file/plane}}
`
	for _, tc := range []struct {
		field string
		env   string // NAME=value
		flag  string
		want  string // value, origin
	}{
		{"mode", "", "", "file host.yaml:4"},
		{"mode", "POINTSMAN_MODE=env", "", "env env POINTSMAN_MODE"},
		{"mode", "POINTSMAN_MODE=env", "--mode=flag", "flag flag --mode"},
		{"mode", "", "--mode=flag", "flag flag --mode"},
		{"logging.format", "", "", "text default"},
		{"logging.level", "", "", "error host.yaml:5"},
		{"logging.level", "POINTSMAN_LOGGING_LEVEL=debug", "", "debug env POINTSMAN_LOGGING_LEVEL"},
		{"logging.level", "POINTSMAN_LOGGING_LEVEL=debug", "--log-level=warn", "warn flag --log-level"},
		{"minSyncPeriod", "", "", "1s default"},
		{"syncPeriod", "", "", "10s host.yaml:6"},
		{"syncPeriod", "POINTSMAN_SYNCPERIOD=1h30m", "", "1h30m env POINTSMAN_SYNCPERIOD"},
		{"linux.conntrack.min", "", "", "1 host.yaml:9"},
		{"linux.conntrack.min", "POINTSMAN_LINUX_CONNTRACK_MIN=2", "", "2 env POINTSMAN_LINUX_CONNTRACK_MIN"},
		{"linux.masqueradeAll", "POINTSMAN_LINUX_MASQUERADEALL=true", "", "true env POINTSMAN_LINUX_MASQUERADEALL"},
		{"clientConnection.qps", "POINTSMAN_CLIENTCONNECTION_QPS=0.5", "", "0.5 env POINTSMAN_CLIENTCONNECTION_QPS"},
		{"healthzBindAddress", "", "", "0.0.0.0:10256 default"},
		{"healthzBindAddress", "POINTSMAN_HEALTHZBINDADDRESS=", "", " env POINTSMAN_HEALTHZBINDADDRESS"},
		{"healthzBindAddress", "POINTSMAN_HEALTHZBINDADDRESS=192.0.2.1", "", "192.0.2.1:10256 env POINTSMAN_HEALTHZBINDADDRESS"},
		{"metricsBindAddress", "POINTSMAN_METRICSBINDADDRESS=2001:db8::1", "", "[2001:db8::1]:10249 env POINTSMAN_METRICSBINDADDRESS"},
		{"nodePortAddresses", "", "", "[10.0.0.0/8] host.yaml:7"},
		{"nodePortAddresses", "POINTSMAN_NODEPORTADDRESSES=10.1.0.0/16,fd00::/8", "", "[10.1.0.0/16 fd00::/8] env POINTSMAN_NODEPORTADDRESSES"},
		{"nodePortAddresses", "POINTSMAN_NODEPORTADDRESSES=", "", "[] env POINTSMAN_NODEPORTADDRESSES"},
		{"detectLocal.clusterCIDRs", "POINTSMAN_DETECTLOCAL_CLUSTERCIDRS=10.1.0.1/16", "", "[10.1.0.0/16] env POINTSMAN_DETECTLOCAL_CLUSTERCIDRS"},
		{"pluginDirs", "", "", "[/file] host.yaml:8"},
		{"pluginDirs", "", "--plugin-dir=/a,/b", "[/a /b] flag --plugin-dir"},
		{"adminSocket", "", "--admin-socket=/run/x.sock", "/run/x.sock flag --admin-socket"},
		{"plugins.my-plane.path", "", "", "/file/plane host.yaml:10"},
		{"plugins.my-plane.path", "POINTSMAN_PLUGINS_MY_PLANE_PATH=/env/plane", "", "/env/plane env POINTSMAN_PLUGINS_MY_PLANE_PATH"},
		{"plugins.my-plane.path", "POINTSMAN_PLUGINS_MY_PLANE_SHA256=", "", "/file/plane host.yaml:10"},
		{"plugins.other-plane.address", "POINTSMAN_PLUGINS_OTHER_PLANE_ADDRESS=unix:///run/s", "", "unix:///run/s env POINTSMAN_PLUGINS_OTHER_PLANE_ADDRESS"},
		{"apiVersion", "POINTSMAN_APIVERSION=v9", "", "pointsman.dev/v1alpha1 host.yaml:1"},
	} {
		t.Run(strings.Join([]string{tc.field, tc.env, tc.flag}, " "), func(t *testing.T) {
			if name, value, ok := strings.Cut(tc.env, "="); ok {
				t.Setenv(name, value)
			}
			var args []string
			if tc.flag != "" {
				args = append(args, tc.flag)
			}
			path := write(t, file)
			h := mustLoad(t, path, flagSet(t, args...))
			i := slices.IndexFunc(h.Settings(), func(s Setting) bool { return s.Field == tc.field })
			if i < 0 {
				t.Fatal("is not set")
			}
			s := h.Settings()[i]
			got := fmt.Sprint(s.Value) + " " + strings.TrimPrefix(s.Origin.String(), filepath.Dir(path)+string(filepath.Separator))
			if got != tc.want {
				t.Errorf("is %q, want %q", got, tc.want)
			}
		})
	}
}

// What comes from outside a file is checked as strictly, and named.
func TestWrongOutside(t *testing.T) {
	t.Setenv("POINTSMAN_SYNCPERIOD", "30")
	t.Setenv("POINTSMAN_OOMSCOREADJ", "low")
	t.Setenv("POINTSMAN_LINUX_MASQUERADEALL", "")
	t.Setenv("POINTSMAN_LINUX_MASQUERADEBIT", "32")
	t.Setenv("POINTSMAN_EXTERNALIPS_ALLOW", "10.0.0.0/8,all")
	_, err := Load("", flagSet(t, "--log-level=loud", "--plugin-dir="))
	want := `env POINTSMAN_SYNCPERIOD: syncPeriod: want a time with its unit, such as 30s or 1h30m, not "30"
env POINTSMAN_EXTERNALIPS_ALLOW: externalIPs.allow: want a range of addresses, such as 10.0.0.0/8 or fd00::/8, not "all"
env POINTSMAN_OOMSCOREADJ: oomScoreAdj: want a whole number, not "low"
env POINTSMAN_LINUX_MASQUERADEALL: linux.masqueradeAll: want true or false, not ""
env POINTSMAN_LINUX_MASQUERADEBIT: linux.masqueradeBit: want 0 to 31, not 32
flag --log-level: logging.level: want one of trace, debug, info, warn, error, not "loud"`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// TestNoPodRanges warns where a cluster's pods cannot be told from other callers.
func TestNoPodRanges(t *testing.T) {
	for body, warned := range map[string]bool{
		"": true,
		"detectLocal: {clusterCIDRs: [10.244.0.0/16]}\n": false,
		"detectLocalMode: NodeCIDR\n":                    false,
		"source: {files: {path: .}}\n":                   false,
	} {
		h := mustLoad(t, write(t, body), nil)
		about := func(w Problem) bool { return w.Field == "detectLocal.clusterCIDRs" }
		if got := slices.ContainsFunc(h.Warnings(), about); got != warned {
			t.Errorf("%q: warned is %v: %v", body, got, h.Warnings())
		}
	}
}

func TestUnknownEnvironment(t *testing.T) {
	t.Setenv("POINTSMAN_SYNC_PERIOD", "1s")
	t.Setenv("POINTSMAN_LOGING_LEVEL", "debug")
	t.Setenv("POINTSMAN_PLUGINS_IPTABLES_OPTIONS", "{}")
	t.Setenv("POINTSMAN_PLUGINS_IPTABLES_OPTIONS_BACKEND", "nft")
	t.Setenv("POINTSMAN_COLOUR", "red")
	t.Setenv("POINTSMAN_SERVICE_HOST", "10.0.0.1") // what Kubernetes sets beside a Service of this name
	t.Setenv("POINTSMAN_METRICS_PORT_80_TCP_ADDR", "10.0.0.1")
	h := mustLoad(t, "", flagSet(t, "--files=."))
	var got []string
	for _, w := range h.Warnings() {
		got = append(got, w.String())
	}
	slices.Sort(got)
	want := []string{
		"env POINTSMAN_COLOUR: is no setting",
		"env POINTSMAN_LOGING_LEVEL: is no setting; did you mean POINTSMAN_LOGGING_LEVEL?",
		"env POINTSMAN_PLUGINS_IPTABLES_OPTIONS: is no setting; a plugin's options are set in the file",
		"env POINTSMAN_PLUGINS_IPTABLES_OPTIONS_BACKEND: is no setting; a plugin's options are set in the file",
		"env POINTSMAN_SYNC_PERIOD: is no setting; did you mean POINTSMAN_SYNCPERIOD?",
	}
	if !slices.Equal(got, want) {
		t.Errorf("warns %q, want %q", got, want)
	}
}

// Options reach the plugin as they were written, in JSON.
func TestOptions(t *testing.T) {
	h := mustLoad(t, write(t, `
plugins:
  ipvs:
    options:
      strictARP: true
      excludeCIDRs: [10.0.0.0/8]
      10.0.0.0/8: {x.y: 1}
      big: 18446744073709551615
      since: 2026-01-01
      nothing: null
      text: "5"
  none: {options: {}}
  unsaid:
`), nil)
	want := `{"10.0.0.0/8":{"x.y":1},"big":18446744073709551615,"excludeCIDRs":["10.0.0.0/8"],"nothing":null,"since":"2026-01-01","strictARP":true,"text":"5"}`
	if got := string(h.Plugins["ipvs"].Options); got != want {
		t.Errorf("options are\n%s\nwant\n%s", got, want)
	}
	if got := string(h.Plugins["none"].Options); got != "{}" {
		t.Errorf("empty options are %q", got)
	}
	if p, ok := h.Plugins["unsaid"]; !ok || p.Options != nil {
		t.Errorf("a plugin without anything is %+v, %v", p, ok)
	}
	// Where a plugin refuses an option, the host can say where it stands.
	for field, line := range map[string]int{"plugins.ipvs.options.strictARP": 7, "plugins.ipvs.options.excludeCIDRs": 8, "plugins.ipvs.options.unknown": 6} {
		if got := h.Origin(field).Line; got != line {
			t.Errorf("%s stands in line %d, want %d", field, got, line)
		}
	}
}

func TestSource(t *testing.T) {
	for _, tc := range []struct {
		name, body, env string
		flag            string
		want            Source
	}{
		{"none: a cluster, as a pod", "", "", "", Source{Kubernetes: &Kubernetes{}}},
		{"a cluster", "source: {kubernetes: }", "", "", Source{Kubernetes: &Kubernetes{}}},
		{"a kubeconfig", "source: {kubernetes: {kubeconfig: /k}}", "", "", Source{Kubernetes: &Kubernetes{"/k"}}},
		{"files", "source: {files: {path: /srv}}", "", "", Source{Files: &Files{"/srv"}}},
		{"the environment goes before the file", "source: {kubernetes: {kubeconfig: /k}}", "POINTSMAN_SOURCE_FILES_PATH=/env", "", Source{Files: &Files{"/env"}}},
		{"a flag goes before both", "source: {files: {path: /srv}}", "POINTSMAN_SOURCE_FILES_PATH=/env", "--kubeconfig=/flag", Source{Kubernetes: &Kubernetes{"/flag"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if name, value, ok := strings.Cut(tc.env, "="); ok {
				t.Setenv(name, value)
			}
			h := mustLoad(t, write(t, tc.body), flagSet(t, strings.Fields(tc.flag)...))
			if !reflect.DeepEqual(h.Source, tc.want) {
				t.Errorf("got %s", mustJSON(t, h.Source))
			}
		})
	}
}

// A relative path begins where it is written: at the file's folder, or, in a flag,
// where the host is started.
func TestRelativePaths(t *testing.T) {
	path := write(t, "source: {files: {path: demo}}\npluginDirs: [../bin, /abs]\nadminSocket: p.sock\nplugins: {acme: {path: ./acme}}\n")
	h := mustLoad(t, path, flagSet(t, "--state-dir=state"))
	dir := filepath.Dir(path)
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for got, want := range map[string]string{
		h.Source.Files.Path:    filepath.Join(dir, "demo"),
		h.PluginDirs[0]:        filepath.Join(dir, "../bin"),
		h.PluginDirs[1]:        "/abs",
		h.AdminSocket:          filepath.Join(dir, "p.sock"),
		h.Plugins["acme"].Path: filepath.Join(dir, "acme"),
		h.StateDir:             filepath.Join(here, "state"),
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestNodePorts(t *testing.T) {
	for _, tc := range []struct {
		body    string
		ranges  []netip.Prefix
		primary bool
	}{
		{"", nil, false},
		{"nodePortAddresses: [primary]", nil, true},
		{"nodePortAddresses: [10.1.2.3/8, fd00::/8]", []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}, false},
	} {
		ranges, primary := mustLoad(t, write(t, tc.body), nil).NodePorts()
		if !slices.Equal(ranges, tc.ranges) || primary != tc.primary {
			t.Errorf("%q: got %v, %v", tc.body, ranges, primary)
		}
	}
}

// A file cannot be read: the error says which and why, and nothing blocks.
func TestNoFile(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large.yaml")
	if err := os.WriteFile(large, make([]byte, maxFile+1), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "missing.yaml"): "no such file",
		dir:                                "is no regular file",
		large:                              "larger than 1 MiB",
	} {
		if _, err := Load(path, nil); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("load %s: %v, want it named and %q", path, err, want)
		}
	}
}
