// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pointsman/pointsman/host/doctor"
	"github.com/pointsman/pointsman/test/cluster"
)

// permissions runs doctor with all rights of rbac.yaml, without two of them, and with a token that the API server does
// not know. No host runs meanwhile.
func permissions(w *world) {
	w.until("doctor finds all granted", func() error {
		return w.expectFindings(w.token(), "ok it answers")
	})
	roles := w.kube.RbacV1().ClusterRoles()
	role, err := roles.Get(w.Context(), "pointsman", metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for i, rule := range role.Rules {
		switch rule.Resources[0] {
		case "endpointslices":
			role.Rules[i].Verbs = []string{"list"}
		case "events":
			role.Rules[i].Verbs = []string{"get"}
		}
	}
	if _, err := roles.Update(w.Context(), role, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
	defer w.grantRights()
	w.until("doctor finds what is not granted", func() error {
		return w.expectFindings(w.token(),
			"ok it answers",
			"warn it does not allow this host to create events.events.k8s.io: ",
			"fail it does not allow this host to watch endpointslices.discovery.k8s.io: ")
	})
	w.until("doctor is not let in", func() error { return w.expectFindings("unknown", "fail ask the API server whether this host may ") })
}

// expectFindings runs doctor for a host with a token, and compares the findings about the API server with the
// beginnings in want.
func (w *world) expectFindings(token string, want ...string) error {
	w.Helper()
	dir := w.TempDir()
	file := filepath.Join(dir, "host.yaml")
	text := fmt.Sprintf(`apiVersion: pointsman.dev/v1alpha1
kind: HostConfig
source: {kubernetes: {kubeconfig: %q}}
hostnameOverride: node-a
adminSocket: %s/admin.sock
stateDir: %[2]s/state
pluginDirs: [%[3]q]
`, w.api.Kubeconfig(token, ""), dir, cluster.Binaries)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	ctx, cancel := cleanupContext()
	defer cancel()
	out, _ := exec.CommandContext(ctx, filepath.Join(cluster.Binaries, "pointsman"), "doctor", "--config", file, "-o", "json").Output() // the exit code is 1 if a check fails
	var d doctor.Diagnosis
	if err := json.Unmarshal(out, &d); err != nil {
		return fmt.Errorf("doctor prints %q: %w", out, err)
	}
	var found []string
	for _, f := range d.Checks {
		if f.Check == "API server" {
			found = append(found, fmt.Sprint(f.Result, " ", f.Why))
		}
	}
	if !slices.EqualFunc(found, want, strings.HasPrefix) {
		return fmt.Errorf("doctor says of the API server %q; want %q", found, want)
	}
	return nil
}
