// SPDX-License-Identifier: Apache-2.0

package test

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/host/bundle"
)

// unpacked are the members of an archive.
func unpacked(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	zip, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	members := make(map[string]string)
	for r := tar.NewReader(zip); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return members
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		members[head.Name] = string(text)
	}
}

// TestBundle: an archive has what a colleague needs, and is its owner's alone; a file that is there is not
// touched, and without a host there is one all the same.
func TestBundle(t *testing.T) {
	t.Parallel()
	s := begun(t)
	s.manifest("empty.yaml", serviceOf("empty", "NET.11", "TCP", 18081))
	s.until("both are known", func() error {
		if got := s.verb("service", "list"); strings.Count(got.out, "\n") != 3 {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	path := s.path("b.tar.gz")
	if got := s.verb("bundle", path); got.code != 0 || !strings.HasPrefix(got.out, "wrote "+path+": ") {
		t.Fatalf("%+v", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || info.Size() > bundle.Most {
		t.Errorf("%v, %v", info, err)
	}
	members := unpacked(t, path)
	for name, has := range map[string]string{
		"version.json": `"Version"`, "status.json": `"mode": "userspace"`, "config.json": `"minSyncPeriod"`, "mode.json": `"Mode"`, "plugins.json": `"serving"`,
		"events.json": "DataplaneActive", "doctor.json": `"connection tracking"`, "kernel.json": "net/ipv4/ip_forward", "diff.json": `"Diff"`,
		"services.json": "web", "services/ns.empty.json": `"no endpoints"`, "logs/userspace.ndjson": "", "MANIFEST.json": `"Bundle"`,
	} {
		if text, there := members[name]; !there || !strings.Contains(text, has) {
			t.Errorf("%s is there: %t, and has no %q: %.300s", name, there, has, text)
		}
	}
	if got := s.verb("bundle", path); got.code != 1 || !strings.Contains(got.err, "exists already, and is left as it is") {
		t.Errorf("on a file that is there: %+v", got)
	}
	s.stop()
	path = s.path("without.tar.gz")
	if got := s.verb("bundle", path); got.code != 2 || !strings.Contains(got.out, "missing status.json: no host answers") {
		t.Errorf("without a host: %+v", got)
	}
	members = unpacked(t, path)
	var m bundle.Manifest
	if err := json.Unmarshal([]byte(members["MANIFEST.json"]), &m); err != nil {
		t.Fatal(err)
	}
	missing := slices.ContainsFunc(m.Members, func(m bundle.Member) bool {
		return m.Name == "status.json" && strings.Contains(m.Error, "no host answers")
	})
	if !missing || members["doctor.json"] == "" || members["version.json"] == "" || members["config.json"] == "" || members["kernel.json"] == "" {
		t.Errorf("without a host there are %d members, and the manifest is %+v", len(members), m)
	}
	if got := s.verb("bundle", s.path("no/folder/b")); got.code != 1 {
		t.Errorf("where no file can be made: %+v", got)
	}
}

// TestBundleHasNoSecrets plants secrets in a kubeconfig and the file that it names, in environments, in
// options and in the log of a plugin, and looks for them in everything that is in an archive: with a host,
// and with a config file that cannot be used.
func TestBundleHasNoSecrets(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	planted := make(map[string]string)
	plant := func(where string) string {
		planted[where] = "planted-" + strings.ReplaceAll(where, " ", "-") + "-7Gq2"
		return planted[where]
	}
	s.write("token", plant("token file"))
	s.write("kubeconfig", `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://me:`+plant("address")+`@`+s.net+`200:6443"}}]
users:
- name: u
  user: {tokenFile: token, username: me, password: `+plant("password")+`}
- name: other
  user: {token: `+plant("token")+`, exec: {command: /bin/false, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, args: [`+plant("argument")+`], env: [{name: A, value: `+plant("exec environment")+`}]}}
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`)
	source := "source: {kubernetes: {kubeconfig: kubeconfig}}"
	s.write("host.yaml", strings.Replace(s.text(""), "source: {files: {path: services}}", source, 1))
	s.env = []string{"MY_API_TOKEN=" + plant("environment"), "ANY_NAME=" + plant("any environment")}
	s.start()
	s.until("it answers", func() error { _, err := s.Status(t.Context()); return err })
	look := func(name string) {
		t.Helper()
		if got := s.verb("bundle", s.path(name)); got.code != 0 && got.code != 2 {
			t.Fatalf("%+v", got)
		}
		for member, text := range unpacked(t, s.path(name)) {
			for where, secret := range planted {
				if strings.Contains(text, secret) || strings.Contains(member, secret) {
					t.Errorf("%s: %s has the secret of %s", name, member, where)
				}
			}
		}
	}
	look("running.tar.gz")
	s.write("host.yaml", strings.NewReplacer("source: {files: {path: services}}", source,
		"redirect: never", "redirect: never, udpIdleTimeout: "+plant("option")+", password: "+plant("unknown option")).Replace(s.text("")))
	look("wrong-options.tar.gz")
	s.write("host.yaml", "mode: [userspace\nplugins: {userspace: {options: {password: "+plant("no YAML")+"}}}\n")
	look("no-yaml.tar.gz")
}

// TestBundleTakesSecretsOut plants secrets where an archive has text from: as names of Services. One is the
// value of a variable of the host's environment, the other of an option of the plugin.
func TestBundleTakesSecretsOut(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	const inEnvironment, inOptions = "planted-environment-7gq2", "123456ms"
	s.write("host.yaml", strings.Replace(s.text(""), "redirect: never", "redirect: never, udpIdleTimeout: "+inOptions, 1))
	s.env = []string{"MY_API_TOKEN=" + inEnvironment}
	s.manifest("one.yaml", serviceOf(inEnvironment, "NET.11", "TCP", 18081))
	s.manifest("two.yaml", serviceOf("web-"+inOptions, "NET.12", "TCP", 18082))
	s.start()
	s.serving()
	s.until("both are known", func() error {
		if got := s.verb("service", "list"); !strings.Contains(got.out, inEnvironment) || !strings.Contains(got.out, inOptions) {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	if got := s.verb("bundle", s.path("b.tar.gz")); got.code != 0 || strings.Contains(got.out, " 0 secrets taken out") {
		t.Fatalf("%+v", got)
	}
	members := unpacked(t, s.path("b.tar.gz"))
	for member, text := range members {
		for _, secret := range []string{inEnvironment, inOptions} {
			if strings.Contains(text, secret) || strings.Contains(member, secret) {
				t.Errorf("%s has %s", member, secret)
			}
		}
	}
	if !strings.Contains(members["services.json"], `"web-(secret)"`) {
		t.Errorf("services.json is %s", members["services.json"])
	}
}
