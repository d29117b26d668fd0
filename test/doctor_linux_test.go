// SPDX-License-Identifier: Apache-2.0

package test

import (
	"os"
	"regexp"
	"testing"
)

// TestDoctor runs doctor on a node with a host, with an invalid config file, and without a host.
func TestDoctor(t *testing.T) {
	t.Parallel()
	s := servingSystem(t)
	file := []string{"--config", s.path("host.yaml")}
	examined := func(code int, words []string, want ...string) {
		t.Helper()
		got := s.run(append([]string{"doctor"}, words...)...)
		for _, w := range want {
			if !regexp.MustCompile("(?m)"+w).MatchString(got.out) || got.code != code && !(code == 0 && got.code == 2) { // a warning depends on the node
				t.Errorf("no %q; pointsman doctor exits %d, and says\n%s%s", w, got.code, got.out, got.err)
			}
		}
	}
	stateDir := `^ok +stateDir +` + s.path("state") + ` has \d+ MiB left$`
	examined(0, file, `^ok +host +process \d+, mode userspace$`, stateDir, `^\w+ +connection tracking +`, `^ok +kube-proxy `)
	examined(0, []string{"--admin-socket", s.path("admin.sock")}, stateDir) // by the settings of the running host

	if err := os.Chmod(s.path("state"), 0o777); err != nil {
		t.Fatal(err)
	}
	examined(1, file, `^fail +stateDir +every user may write`, `try: chmod o-w`, `^fail +in all`)
	if err := os.Chmod(s.path("state"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.stop()
	s.config("minSyncPeriod: never\n")
	examined(1, file, `^fail +host +no host answers`, `try: systemctl start pointsman`, `^fail +config +.*minSyncPeriod`)
}
