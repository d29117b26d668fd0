// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"github.com/pointsman/pointsman/host/doctor"
)

// TestDoctor runs doctor on a node with a host, with an invalid config file, and without a host.
func TestDoctor(t *testing.T) {
	t.Parallel()
	s := servingSystem(t)
	examined := func(words []string, want ...string) doctor.Diagnosis {
		t.Helper()
		got := s.run(append([]string{"doctor"}, words...)...)
		for _, w := range want {
			if !regexp.MustCompile("(?m)" + w).MatchString(got.out) {
				t.Errorf("no %q; pointsman doctor exits %d, and says\n%s%s", w, got.code, got.out, got.err)
			}
		}
		var d doctor.Diagnosis
		asJSON := s.run(append([]string{"doctor", "-o", "json"}, words...)...)
		if err := json.Unmarshal([]byte(asJSON.out), &d); err != nil || d.Kind != "Diagnosis" {
			t.Fatalf("%v: %s", err, asJSON.out)
		}
		if exits := map[doctor.Result]int{doctor.OK: 0, doctor.Warn: 2, doctor.Fail: 1}; asJSON.code != exits[d.Result] || d.Result != doctor.NewDiagnosis(d.Checks).Result {
			t.Errorf("exit %d with %s, of %+v", asJSON.code, d.Result, d.Checks)
		}
		return d
	}
	file := []string{"--config", s.path("host.yaml")}
	d := examined(file, `^ok +host +process \d+, mode userspace$`, `^ok +stateDir +`+s.path("state")+` has \d+ MiB left$`, `^\w+ +connection tracking +`, `^ok +kube-proxy `)
	for _, f := range d.Checks {
		if f.Result == doctor.Fail {
			t.Errorf("on a healthy node: %+v", f)
		}
	}
	// Without the config file, doctor uses the settings of the running host.
	examined([]string{"--admin-socket", s.path("admin.sock")}, `^ok +host +process \d+, mode userspace$`, `^ok +stateDir +`+s.path("state")+` has`)

	if err := os.Chmod(s.path("state"), 0o777); err != nil {
		t.Fatal(err)
	}
	examined(file, `^fail +stateDir +every user may write`, `try: chmod o-w`, `^fail +in all`)
	if err := os.Chmod(s.path("state"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.stop()
	s.config("minSyncPeriod: never\n")
	examined(file, `^fail +host +no host answers`, `try: systemctl start pointsman`, `^fail +config +.*minSyncPeriod`)
}
