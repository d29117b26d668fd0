// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

// TestPlacesOfWindows: the defaults have no path of another system there.
func TestPlacesOfWindows(t *testing.T) {
	p := windowsPlaces(func(name string) string { return map[string]string{"ProgramData": `D:\Bob's data`}[name] })
	text := p.in(defaults)
	for _, want := range []string{
		"\nmode: userspace\n",
		"\nadminSocket: '\\\\.\\pipe\\pointsman'\n",
		"\nstateDir: 'D:\\Bob''s data\\Pointsman\\state'\n",
		"\ndataDir: 'D:\\Bob''s data\\Pointsman\\data'\n",
		"\npluginDirs: ['C:\\Program Files\\Pointsman']\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("they lack %q", want)
		}
	}
	for _, place := range []string{" /run/", " /var/", "[/usr/"} {
		if strings.Contains(text, place) {
			t.Errorf("they have a place in %s", place)
		}
	}
	if got := p.file(); got != `D:\Bob's data\Pointsman\host.yaml` {
		t.Errorf("the file is %s", got)
	}
	if r := read(Default, "defaults.yaml", []byte(text)); r.broken() {
		t.Errorf("they cannot be read: %v", r.problems)
	}
}
