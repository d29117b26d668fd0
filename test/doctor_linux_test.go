// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/pointsman/pointsman/host/admin"
)

// ephemeral is a Service with a node port that connections of the node may use too.
const ephemeral = `apiVersion: v1
kind: Service
metadata: {name: high, namespace: ns}
spec:
  type: NodePort
  clusterIP: NET.20
  clusterIPs: [NET.20]
  ipFamilies: [IPv4]
  ipFamilyPolicy: SingleStack
  ports: [{name: p, port: 18090, nodePort: %d, protocol: TCP}]
---
`

// TestDoctor finds what is wrong with a host, its file, its folders and its Services, and that
// there is no host.
func TestDoctor(t *testing.T) {
	t.Parallel()
	s := begun(t)
	examined := func(want ...string) admin.Diagnosis {
		t.Helper()
		got := s.verb("doctor")
		for _, w := range want {
			if !regexp.MustCompile("(?m)" + w).MatchString(got.out) {
				t.Errorf("no %q; pointsman doctor exits %d, and says\n%s%s", w, got.code, got.out, got.err)
			}
		}
		var d admin.Diagnosis
		asJSON := s.verb("doctor", "-o", "json")
		if err := json.Unmarshal([]byte(asJSON.out), &d); err != nil || d.Kind != "Diagnosis" {
			t.Fatalf("%v: %s", err, asJSON.out)
		}
		if exits := map[admin.Result]int{admin.OK: 0, admin.Warn: 2, admin.Fail: 1}; asJSON.code != exits[d.Result] || d.Result != admin.Worst(d.Checks) {
			t.Errorf("exit %d with %s, of %+v", asJSON.code, d.Result, d.Checks)
		}
		return d
	}
	d := examined(`^ok +host +version .*, mode userspace$`, `^ok +config +\S+host.yaml can be used$`, `^ok +stateDir +.* is guarded, and has \d+ MiB left$`, `^\w+ +connection tracking +`)
	for _, f := range d.Checks {
		if f.Result == admin.Fail {
			t.Errorf("of what is well: %+v", f)
		}
	}
	if os.Getuid() == 0 {
		examined(`^ok +plugin userspace +this node can run it$`)
	}

	s.manifest("high.yaml", fmt.Sprintf(ephemeral, highPort(t)))
	s.until("the node port is known", func() error {
		if got := s.verb("doctor"); !regexp.MustCompile(`warn +node ports +\d+: connections of this node may use them too`).MatchString(got.out) {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})

	if err := os.Chmod(s.path("state"), 0o777); err != nil {
		t.Fatal(err)
	}
	examined(`^fail +stateDir +.*`, `^fail +in all`)
	if err := os.Chmod(s.path("state"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.config("minSyncPeriod: never\n")
	examined(`^fail +config +.*minSyncPeriod`)
	s.config("")
	s.stop()
	examined(`^fail +host +no host answers`, `try: pointsman run`)
}

// highPort is one that the kernel gives to connections of this machine.
func highPort(t *testing.T) (port int) {
	t.Helper()
	text := read(t, "/proc/sys/net/ipv4/ip_local_port_range")
	var low int
	if _, err := fmt.Sscan(text, &low, &port); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return port
}
