// SPDX-License-Identifier: Apache-2.0

package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unit is a unit file's settings, by section and name.
func unit(t *testing.T, file string) map[string][]string {
	t.Helper()
	settings, section := map[string][]string{}, ""
	for line := range strings.Lines(read(t, file)) {
		line = strings.TrimSpace(line)
		name, value, set := strings.Cut(line, "=")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]") + "."
		case !set:
			t.Errorf("%s: %q sets nothing", file, line)
		default:
			settings[section+name] = append(settings[section+name], value)
		}
	}
	return settings
}

// TestUnits holds the units to what the documents promise of them.
func TestUnits(t *testing.T) {
	for file, want := range map[string]map[string]string{
		"pointsman.service": {
			"Type": "notify", "User": "pointsman", "CapabilityBoundingSet": "", "KillMode": "process", "OOMPolicy": "continue", "Restart": "always",
			"StateDirectory": "pointsman", // the default of dataDir
			"ExecStartPre":   "/usr/bin/pointsman config validate --config /etc/pointsman/host.yaml",
		},
		"pointsman-dataplane@.service": {
			"CapabilityBoundingSet": "CAP_NET_ADMIN CAP_NET_RAW", "Group": "pointsman", "RuntimeDirectoryMode": "0750", "OOMPolicy": "continue", "Restart": "always",
			"WatchdogSec": "10", "TimeoutAbortSec": "2", // the host may not end one that hangs
		},
		"pointsman-forked.service": {
			"Type": "notify", "KillMode": "process", "OOMPolicy": "continue", "Restart": "always",
			"StateDirectory": "pointsman",
			"ExecStartPre":   "/usr/bin/pointsman config validate --config /etc/pointsman/host.yaml",
		},
	} {
		has := unit(t, "../configs/systemd/"+file)
		want["NoNewPrivileges"], want["ProtectSystem"] = "yes", "strict"
		for name, value := range want {
			if got := has["Service."+name]; !slices.Equal(got, []string{value}) {
				t.Errorf("%s: %s is %q, want %q", file, name, got, value)
			}
		}
		if got := has["Unit.StartLimitIntervalSec"]; !slices.Equal(got, []string{"0"}) {
			t.Errorf("%s: systemd gives it up after some crashes: StartLimitIntervalSec is %q", file, got)
		}
	}
}

// TestUnitsOfEveryMode: the settings have every mode, and the host's unit starts with those that are enabled.
func TestUnitsOfEveryMode(t *testing.T) {
	modes, err := filepath.Glob("../plugins/*/pointsman-dataplane-*")
	if err != nil || len(modes) < 4 {
		t.Fatalf("%q, %v", modes, err)
	}
	for _, mode := range modes {
		_, name, _ := strings.Cut(filepath.Base(mode), "-dataplane-")
		if !strings.Contains(read(t, "../configs/systemd/host.yaml"), name+": {address: unix:///run/pointsman/"+name+"/plugin.sock}") {
			t.Errorf("host.yaml does not know the unit of %s", name)
		}
	}
	host, dataplane := unit(t, "../configs/systemd/pointsman.service"), unit(t, "../configs/systemd/pointsman-dataplane@.service")
	if wants := host["Unit.Wants"]; !slices.Equal(wants, []string{"network-online.target"}) {
		t.Errorf("the host wants %q, whatever its mode", wants)
	}
	if by := dataplane["Install.WantedBy"]; !slices.Equal(by, []string{"pointsman.service"}) {
		t.Errorf("an enabled dataplane starts with %q, want with the host alone", by)
	}
}

// forms are the units of each form, by the names under which they are installed.
var forms = map[string]map[string]string{
	"apart":  {"pointsman.service": "pointsman.service", "pointsman-dataplane@.service": "pointsman-dataplane@.service"},
	"forked": {"pointsman.service": "pointsman-forked.service"},
}

// TestUnitsVerify has systemd itself read them, with this test's binaries in place of
// those that are to be installed.
func TestUnitsVerify(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("needs systemd-analyze: on Debian, of the package systemd")
	}
	for form, units := range forms {
		dir := t.TempDir()
		var files []string
		for name, source := range units {
			text := strings.NewReplacer("/usr/bin/pointsman", "/bin/true", "/usr/libexec/pointsman/pointsman-dataplane-%i", "/bin/true").Replace(read(t, "../configs/systemd/"+source))
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			files = append(files, filepath.Join(dir, strings.Replace(name, "@.", "@iptables.", 1)))
		}
		cmd := exec.CommandContext(t.Context(), "systemd-analyze", append([]string{"verify", "--man=no", "--recursive-errors=no"}, files...)...)
		cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
		out, err := cmd.CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("%s: systemd-analyze verify: %v: %s", form, err, out)
		}
	}
}
