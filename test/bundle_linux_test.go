// SPDX-License-Identifier: Apache-2.0

package test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

// unpacked returns the files of a tar.gz archive by name.
func unpacked(t *testing.T, path string) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(strings.NewReader(read(t, path)))
	if err != nil {
		t.Fatal(err)
	}
	members := make(map[string]string)
	for r := tar.NewReader(zip); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return members
		}
		text, failed := io.ReadAll(r)
		if err := errors.Join(err, failed); err != nil {
			t.Fatal(err)
		}
		members[head.Name] = string(text)
	}
}

// TestBundle writes a bundle while a host runs and after it has stopped.
func TestBundle(t *testing.T) {
	t.Parallel()
	s := servingSystem(t)
	path := s.path("b.tar.gz")
	if got := s.verb("bundle", path); got.code != 0 || got.out != "wrote "+path+": 11 files\n" {
		t.Fatalf("%+v", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	members := unpacked(t, path)
	for name, has := range map[string]string{
		"version.json": `"Version"`, "status.json": `"mode":"userspace"`, "config.json": `"minSyncPeriod"`, "mode.json": `"Mode"`, "plugins.json": `"serving"`,
		"events.json": "DataplaneActive", "doctor.json": `"connection tracking"`, "diff.json": `"Diff"`, "metrics.txt": "kubeproxy_sync_proxy_rules",
		"services.json": `"web"`, "logs/userspace.ndjson": "",
	} {
		if text, there := members[name]; !there || !strings.Contains(text, has) {
			t.Errorf("%s is there: %t, and has no %q: %.300s", name, there, has, text)
		}
	}
	if got := s.verb("bundle", path); got.code != 1 || !strings.Contains(got.err, "exists already and is not overwritten") {
		t.Errorf("with a file that exists: %+v", got)
	}
	s.stop()
	path = s.path("without.tar.gz")
	if got := s.verb("bundle", path); got.code != 2 || !strings.Contains(got.out, "missing status.json: no host answers") {
		t.Errorf("without a host: %+v", got)
	}
	members = unpacked(t, path)
	for name, has := range map[string]string{"missing.txt": "status.json: no host answers", "doctor.json": `"fail"`, "version.json": `"Version"`, "config.json": `"minSyncPeriod"`} {
		if !strings.Contains(members[name], has) {
			t.Errorf("without a host, %s has no %q: %.300s", name, has, members[name])
		}
	}
	if got := s.verb("bundle", s.path("no/folder/b")); got.code != 1 {
		t.Errorf("in a folder that does not exist: %+v", got)
	}
}

// TestBundleHasNoSecrets puts secrets in a kubeconfig and its token file, in the host's environment and
// in plugin options, and searches every file of a bundle for them: with valid options, with options
// that the plugin refuses, and with an invalid config file.
func TestBundleHasNoSecrets(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	planted := make(map[string]string)
	const accepted = "1234567ms" // an option that the plugin accepts
	planted["accepted option"] = accepted
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
	s.until("the host answers", func() error { _, err := s.Status(t.Context()); return err })
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
		"redirect: never", "redirect: never, udpIdleTimeout: "+accepted).Replace(s.text("")))
	s.until("the option is in force", func() error {
		if got := s.verb("config", "show", "--running"); !strings.Contains(got.out, accepted) {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	look("options.tar.gz")
	s.write("host.yaml", strings.NewReplacer("source: {files: {path: services}}", source,
		"redirect: never", "redirect: never, udpIdleTimeout: "+plant("option")+", password: "+plant("unknown option")).Replace(s.text("")))
	look("wrong-options.tar.gz")
	s.write("host.yaml", "mode: [userspace\nplugins: {userspace: {options: {password: "+plant("no YAML")+"}}}\n")
	look("no-yaml.tar.gz")
}
