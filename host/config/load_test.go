// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/pflag"
)

const head = "apiVersion: pointsman.dev/v1alpha1\nkind: HostConfig\n"

// write writes a config file into a new folder. body follows the kind.
func write(t *testing.T, body string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "host.yaml")
	must(t, os.WriteFile(path, []byte(head+body), 0o644))
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
	inherited := pflag.NewFlagSet("show", pflag.ContinueOnError) // as cobra has the flags of a parent command
	inherited.AddFlagSet(flags)
	return inherited
}

func mustLoad(t *testing.T, path string, flags *pflag.FlagSet) *Host {
	t.Helper()
	h, err := Load(path, flags)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// setenv sets NAME=value, or nothing if entry is empty.
func setenv(t *testing.T, entry string) {
	t.Helper()
	if name, value, ok := strings.Cut(entry, "="); ok {
		t.Setenv(name, value)
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var update = flag.Bool("update", false, "write the results to testdata; read the diff before you commit it")

// golden compares got with the content of file. With -update it writes got to file.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		must(t, os.WriteFile(file, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if got != string(want) {
		t.Errorf("%s\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}

// TestWrong loads each file in testdata/wrong, and compares the errors with the text beside it.
func TestWrong(t *testing.T) {
	files, err := filepath.Glob("testdata/wrong/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("found %d files: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			_, err := Load(filepath.ToSlash(file), nil)
			if err == nil {
				t.Fatal("no error")
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".txt", strings.ReplaceAll(err.Error(), "testdata/wrong/", "")+"\n")
		})
	}
}

// TestPrecedence checks that flags take precedence over the environment, the file and the defaults, in this order.
func TestPrecedence(t *testing.T) {
	file := `
mode: file
logging: {level: error}
syncPeriod: 10s
nodePortAddresses: [10.0.0.0/8]
pluginDirs: [/file]
linux: {conntrack: {min: 1}}
plugins: {my-plane: {path: /file/plane, options: {a: 1}}}
`
	for _, tc := range []struct {
		env   string // NAME=value
		flag  string
		field string
		want  string // as JSON
		where string
	}{
		{"", "", "mode", `"file"`, "host.yaml"},
		{"POINTSMAN_MODE=env", "", "mode", `"env"`, "env POINTSMAN_MODE"},
		{"POINTSMAN_MODE=env", "--mode=flag", "mode", `"flag"`, "flag --mode"},
		{"", "--mode=flag", "mode", `"flag"`, "flag --mode"},
		{"", "", "logging.format", `"text"`, "host.yaml"},
		{"POINTSMAN_LOGGING_LEVEL=debug", "--log-level=warn", "logging.level", `"warn"`, "flag --log-level"},
		{"", "", "minSyncPeriod", `"1s"`, "host.yaml"},
		{"POINTSMAN_SYNCPERIOD=1h30m", "", "syncPeriod", `"1h30m0s"`, "env POINTSMAN_SYNCPERIOD"},
		{"", "", "linux.conntrack.min", "1", "host.yaml"},
		{"POINTSMAN_LINUX_CONNTRACK_MIN=2", "", "linux.conntrack.min", "2", "env POINTSMAN_LINUX_CONNTRACK_MIN"},
		{"POINTSMAN_LINUX_MASQUERADEALL=1", "", "linux.masqueradeAll", "true", "env POINTSMAN_LINUX_MASQUERADEALL"},
		{"POINTSMAN_CLIENTCONNECTION_QPS=0.5", "", "clientConnection.qps", "0.5", "env POINTSMAN_CLIENTCONNECTION_QPS"},
		{"POINTSMAN_HEALTHZBINDADDRESS=", "", "healthzBindAddress", `""`, "env POINTSMAN_HEALTHZBINDADDRESS"},
		{"POINTSMAN_NODEPORTADDRESSES=10.1.0.0/16,fd00::/8", "", "nodePortAddresses", `["10.1.0.0/16","fd00::/8"]`, "env POINTSMAN_NODEPORTADDRESSES"},
		{"POINTSMAN_NODEPORTADDRESSES=::/0", "", "nodePortAddresses", `["::/0"]`, "env POINTSMAN_NODEPORTADDRESSES"},
		{"POINTSMAN_NODEPORTADDRESSES=0.0.0.0/0, ::/0", "", "nodePortAddresses", `["0.0.0.0/0","::/0"]`, "env POINTSMAN_NODEPORTADDRESSES"},
		{"POINTSMAN_NODEPORTADDRESSES=[10.1.0.0/16, fd00::/8]", "", "nodePortAddresses", `["10.1.0.0/16","fd00::/8"]`, "env POINTSMAN_NODEPORTADDRESSES"},
		{"POINTSMAN_NODEPORTADDRESSES=", "", "nodePortAddresses", `[]`, "env POINTSMAN_NODEPORTADDRESSES"},
		{"POINTSMAN_PLUGINDIRS=/a b,/c", "", "pluginDirs", `["/a b","/c"]`, "env POINTSMAN_PLUGINDIRS"},
		{"", "--plugin-dir=/a,/b", "pluginDirs", `["/a","/b"]`, "flag --plugin-dir"},
		{"", "--plugin-dir=", "pluginDirs", `[]`, "flag --plugin-dir"},
		{"", "--admin-socket=/run/x.sock", "adminSocket", `"/run/x.sock"`, "flag --admin-socket"},
		{"POINTSMAN_PLUGINS_MY_PLANE_PATH=/env/plane", "", "plugins.my-plane.path", `"/env/plane"`, "env POINTSMAN_PLUGINS_MY_PLANE_PATH"},
		{"POINTSMAN_PLUGINS_MY_PLANE_PATH=/env/plane", "", "plugins.my-plane.options", `{"a":1}`, "host.yaml"},
		{"POINTSMAN_PLUGINS_OTHER_ADDRESS=unix:///run/s", "", "plugins.other.address", `"unix:///run/s"`, "env POINTSMAN_PLUGINS_OTHER_ADDRESS"},
		{"POINTSMAN_APIVERSION=v9", "", "apiVersion", `"pointsman.dev/v1alpha1"`, "host.yaml"},
	} {
		t.Run(strings.Join([]string{tc.field, tc.env, tc.flag}, " "), func(t *testing.T) {
			setenv(t, tc.env)
			h := mustLoad(t, write(t, file), flagSet(t, strings.Fields(tc.flag)...))
			if got := string(flatten(h)[tc.field]); got != tc.want {
				t.Errorf("the value is %s, want %s", got, tc.want)
			}
			if got := filepath.Base(h.Problem(tc.field, "", "").Where); got != filepath.Base(tc.where) {
				t.Errorf("the value is from %s, want %s", got, tc.where)
			}
		})
	}
}

// TestWrongOutside checks errors in flags and variables.
func TestWrongOutside(t *testing.T) {
	t.Setenv("POINTSMAN_SYNCPERIOD", "30")
	t.Setenv("POINTSMAN_OOMSCOREADJ", "low")
	t.Setenv("POINTSMAN_LINUX_MASQUERADEALL", "")
	t.Setenv("POINTSMAN_LINUX_MASQUERADEBIT", "32")
	t.Setenv("POINTSMAN_EXTERNALIPS_ALLOW", "10.0.0.0/8,all")
	_, err := Load("", flagSet(t, "--log-level=loud", "--plugin-dir="))
	want := `env POINTSMAN_EXTERNALIPS_ALLOW: externalIPs.allow: want a list of address ranges, such as [10.0.0.0/8, fd00::/8], not "10.0.0.0/8,all"
env POINTSMAN_LINUX_MASQUERADEALL: linux.masqueradeAll: want true or false, not ""
env POINTSMAN_LINUX_MASQUERADEBIT: linux.masqueradeBit: want 0 to 31, not 32
flag --log-level: logging.level: want one of trace, debug, info, warn, error, not "loud"
env POINTSMAN_OOMSCOREADJ: oomScoreAdj: want a whole number, not "low"
env POINTSMAN_SYNCPERIOD: syncPeriod: want a time with its unit, such as 30s or 1h30m, not "30"`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// TestWrongInFileAlone checks that a value in the file is refused even if a flag overrides it.
func TestWrongInFileAlone(t *testing.T) {
	for body, want := range map[string]string{
		"logging: {level: 5}\n":                           "logging.level: want text, not 5",
		"source: {kubernetes: {}, files: {path: /srv}}\n": "source: has both kubernetes and files",
	} {
		if _, err := Load(write(t, body), flagSet(t, "--log-level=info", "--kubeconfig=/k")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", body, err, want)
		}
	}
}

// TestWarnings checks the warnings about variables and about missing ranges of pods.
func TestWarnings(t *testing.T) {
	for _, name := range []string{"POINTSMAN_SYNC_PERIOD", "POINTSMAN_PLUGINS_IPTABLES_OPTIONS", "POINTSMAN_PLUGINS__X_PATH", "POINTSMAN_SERVICE_HOST", "POINTSMAN_METRICS_PORT_80_TCP_ADDR", "POINTSMAN_LOG_LEVEL"} {
		t.Setenv(name, "x")
	}
	for body, want := range map[string]string{
		"": "env POINTSMAN_PLUGINS_IPTABLES_OPTIONS|env POINTSMAN_PLUGINS__X_PATH|env POINTSMAN_SYNC_PERIOD|host.yaml: detectLocal.clusterCIDRs",
		"detectLocal: {clusterCIDRs: [10.244.0.0/16]}\n": "env POINTSMAN_PLUGINS_IPTABLES_OPTIONS|env POINTSMAN_PLUGINS__X_PATH|env POINTSMAN_SYNC_PERIOD",
		"detectLocalMode: NodeCIDR\n":                    "env POINTSMAN_PLUGINS_IPTABLES_OPTIONS|env POINTSMAN_PLUGINS__X_PATH|env POINTSMAN_SYNC_PERIOD",
		"source: {files: {path: .}}\n":                   "env POINTSMAN_PLUGINS_IPTABLES_OPTIONS|env POINTSMAN_PLUGINS__X_PATH|env POINTSMAN_SYNC_PERIOD",
	} {
		var got []string
		for _, w := range mustLoad(t, write(t, body), nil).From.Warnings {
			got = append(got, strings.TrimSuffix(filepath.Base(w.Where)+": "+w.Field, ": "))
		}
		slices.Sort(got)
		if strings.Join(got, "|") != want {
			t.Errorf("%q: warnings %q, want %s", body, got, want)
		}
	}
}

// TestOptions checks that options are converted to JSON without changes.
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
  unset: {options: }
  named: {}
`), nil)
	want := `{"10.0.0.0/8":{"x.y":1},"big":18446744073709551615,"excludeCIDRs":["10.0.0.0/8"],"nothing":null,"since":"2026-01-01","strictARP":true,"text":"5"}`
	if got := string(h.Plugins["ipvs"].Options); got != want {
		t.Errorf("options are\n%s\nwant\n%s", got, want)
	}
	if got := string(h.Plugins["none"].Options); got != "{}" {
		t.Errorf("empty options are %q", got)
	}
	if got := h.Plugins["unset"].Options; got != nil {
		t.Errorf("unset options are %q", got)
	}
	if _, ok := h.Plugins["named"]; !ok {
		t.Error("a plugin without settings is missing")
	}
}

// TestPublic checks that the values of options are hidden.
func TestPublic(t *testing.T) {
	h := mustLoad(t, write(t, "plugins: {x: {path: /x, options: {apiToken: hush, depth: 7, deep: [{key: \"hu\\\"sh\"}]}}, other: {path: /y}}\n"), nil)
	public, hidden := h.Public()
	want := `{"other":{"path":"/y"},"x":{"path":"/x","options":{"apiToken":"(secret)","deep":"(secret)","depth":"(secret)"}}}`
	if got := mustJSON(t, public.Plugins); got != want {
		t.Errorf("public plugins %s, want %s", got, want)
	}
	slices.Sort(hidden)
	if want := []string{`hu"sh`, "hush", "key"}; !slices.Equal(hidden, want) {
		t.Errorf("hidden %q, want %q", hidden, want)
	}
}

// TestSource checks that the last layer that names a source decides.
func TestSource(t *testing.T) {
	for _, tc := range []struct{ name, body, env, flag, want string }{
		{"none", "", "", "", `{"kubernetes":{"kubeconfig":""}}`},
		{"a cluster", "source: {kubernetes: }", "", "", `{"kubernetes":{"kubeconfig":""}}`},
		{"a kubeconfig", "source: {kubernetes: {kubeconfig: /k}}", "", "", `{"kubernetes":{"kubeconfig":"/k"}}`},
		{"files", "source: {files: {path: /srv}}", "", "", `{"files":{"path":"/srv"}}`},
		{"the environment overrides the file", "source: {kubernetes: {kubeconfig: /k}}", "POINTSMAN_SOURCE_FILES_PATH=/env", "", `{"files":{"path":"/env"}}`},
		{"a flag overrides both", "source: {files: {path: /srv}}", "POINTSMAN_SOURCE_FILES_PATH=/env", "--kubeconfig=/flag", `{"kubernetes":{"kubeconfig":"/flag"}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			setenv(t, tc.env)
			if got := mustJSON(t, mustLoad(t, write(t, tc.body), flagSet(t, strings.Fields(tc.flag)...)).Source); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// TestRelativePaths checks that a relative path is resolved against the folder of the file, or in a flag against the
// working directory.
func TestRelativePaths(t *testing.T) {
	path := write(t, "source: {files: {path: demo}}\npluginDirs: [../bin, /abs]\nadminSocket: p.sock\nplugins: {acme: {path: ./acme}}\n")
	h := mustLoad(t, path, flagSet(t, "--state-dir=state"))
	dir := filepath.Dir(path)
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	got := []string{h.Source.Files.Path, h.PluginDirs[0], h.PluginDirs[1], h.AdminSocket, h.Plugins["acme"].Path, h.StateDir}
	want := []string{filepath.Join(dir, "demo"), filepath.Join(dir, "../bin"), "/abs", filepath.Join(dir, "p.sock"), filepath.Join(dir, "acme"), filepath.Join(here, "state")}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestValues checks values that are converted.
func TestValues(t *testing.T) {
	h := mustLoad(t, write(t, "nodePortAddresses: [10.1.2.3/8, fd00::/8]\ndetectLocal: {clusterCIDRs: [10.1.0.1/16]}\nhealthzBindAddress: 192.0.2.1\nmetricsBindAddress: 2001:db8::1\nwebBindAddress: ::1\n"), nil)
	ranges, primary := h.NodePorts()
	got := fmt.Sprintln(ranges, primary, h.DetectLocal.ClusterCIDRs, h.HealthzBindAddress, h.MetricsBindAddress, h.WebBindAddress)
	if want := "[10.0.0.0/8 fd00::/8] false [10.1.0.0/16] 192.0.2.1:10256 [2001:db8::1]:10249 [::1]:10246\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if ranges, primary := mustLoad(t, write(t, "nodePortAddresses: [primary]"), nil).NodePorts(); ranges != nil || !primary {
		t.Errorf("primary is %v, %v", ranges, primary)
	}
	if ranges, primary := mustLoad(t, "", nil).NodePorts(); ranges != nil || primary {
		t.Errorf("none is %v, %v", ranges, primary)
	}
}

// TestNoFile checks the errors for a file that cannot be read.
func TestNoFile(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		filepath.Join(dir, "missing.yaml"): "no such file",
		dir:                                "is not a regular file",
	} {
		if _, err := Load(path, nil); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("load %s: %v, want the path and %q", path, err, want)
		}
	}
}

// TestConfigs loads the files in configs. defaults.yaml must equal the printed defaults, have every field, and be the same
// as no file.
func TestConfigs(t *testing.T) {
	files, err := filepath.Glob("../../configs/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("found %q: %v", files, err)
	}
	for _, file := range files {
		if _, err := Load(file, nil); err != nil {
			t.Errorf("%s:\n%v", file, err)
		}
	}
	const copied = "../../configs/defaults.yaml"
	if text, err := os.ReadFile(copied); err != nil || string(text) != Defaults {
		t.Errorf("configs/defaults.yaml is not what `pointsman config defaults` prints: copy host/config/defaults.yaml there; %v", err)
	}
	h := mustLoad(t, "", nil)
	if got, want := mustJSON(t, mustLoad(t, copied, nil)), mustJSON(t, h); got != want {
		t.Errorf("the printed defaults are\n%s\nand those in force\n%s", got, want)
	}
	defaults := new(Host).decode([]byte(Defaults))
	for path := range flatten(Host{}) {
		if defaults[path] == nil && path != "plugins" {
			t.Errorf("defaults.yaml lacks %s", path)
		}
	}
}

// TestWindows checks that the defaults for Windows have the paths of that system only.
func TestWindows(t *testing.T) {
	file, text := places("windows", func(name string) string { return map[string]string{"ProgramData": `D:\Bob's data`}[name] })
	for _, want := range []string{
		"mode: userspace",
		`adminSocket: "\\\\.\\pipe\\pointsman"`,
		`stateDir: "D:\\Bob's data\\Pointsman\\state"`,
		`dataDir: "D:\\Bob's data\\Pointsman\\data"`,
		`pluginDirs: ["C:\\Program Files\\Pointsman"]`,
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("the defaults lack %q", want)
		}
	}
	for _, place := range []string{" /run/", " /var/", "[/usr/"} {
		if strings.Contains(text, place) {
			t.Errorf("the defaults have a path in %s", place)
		}
	}
	if file != `D:\Bob's data\Pointsman\host.yaml` {
		t.Errorf("the file is %s", file)
	}
	h := new(Host)
	if h.decode([]byte(text)) == nil || h.From.problems != nil {
		t.Errorf("the defaults are refused: %v", h.From.problems)
	}
}

// FuzzParse checks that no file makes Parse panic or hang, that errors have a text, and that valid settings which are
// shown and parsed again are the same.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*/*.yaml", "*.yaml", "../../configs/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := Parse("/fuzz.yaml", data, nil)
		if err != nil {
			if text := err.Error(); text == "" || !utf8.ValidString(text) {
				t.Errorf("the error is %q", text)
			}
			return
		}
		shown := mustJSON(t, h)
		again, err := Parse("/again.yaml", []byte(shown), nil)
		if err != nil {
			t.Fatalf("the shown settings are refused:\n%v\n%s", err, shown)
		}
		if got := mustJSON(t, again); got != shown {
			t.Errorf("the shown settings\n%s\nbecome\n%s", shown, got)
		}
	})
}

// TestEmptyObjects leaves the defaults in force below an object that is null or empty.
func TestEmptyObjects(t *testing.T) {
	for _, body := range []string{"linux: null\n", "linux: {}\n", "linux: {conntrack: null}\n", "linux: {conntrack: {}}\n", "plugins: {}\n"} {
		if got, want := mustLoad(t, write(t, body), nil), mustLoad(t, "", nil); mustJSON(t, got) != mustJSON(t, want) {
			t.Errorf("%s: got %s", body, mustJSON(t, got))
		}
	}
}
