// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// temporary is an empty file.
func temporary(t *testing.T) *os.File {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "archive"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// opened are the members of an archive.
func opened(t *testing.T, archive *os.File) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(io.NewSectionReader(archive, 0, Most))
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
		if head.Mode != 0o600 {
			t.Errorf("%s has mode %o", head.Name, head.Mode)
		}
		members[head.Name] = string(text)
	}
}

// TestArchive: what was added comes out, without secrets, and the manifest says what is missing and why.
func TestArchive(t *testing.T) {
	t.Parallel()
	out := temporary(t)
	a := NewArchive(out, NewScrubber("hunter22"), time.Unix(1_800_000_000, 0))
	for _, err := range []error{
		a.AddJSON(t.Context(), "status.json", func(context.Context) (any, error) { return map[string]string{"why": "hunter22 was refused"}, nil }),
		a.AddJSON(t.Context(), "mode.json", func(context.Context) (any, error) { return nil, errors.New("no host answers to hunter22") }),
		a.Add("logs/iptables.ndjson", []byte("hunter22\n"), errors.New("cut off")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	m, err := a.Close("v1")
	if err != nil {
		t.Fatal(err)
	}
	members := opened(t, out)
	if len(members) != 3 || members["logs/iptables.ndjson"] != "(secret)\n" || !strings.Contains(members["status.json"], "(secret) was refused") {
		t.Errorf("%q", members)
	}
	var read Manifest
	if err := json.Unmarshal([]byte(members["MANIFEST.json"]), &read); err != nil {
		t.Fatal(err)
	}
	want := []Member{{"status.json", len(members["status.json"]), ""}, {"mode.json", 0, "no host answers to (secret)"}, {"logs/iptables.ndjson", 9, "cut off"}}
	if !slices.Equal(read.Members, want) || !slices.Equal(m.Members, want) || read.Scrubbed != 3 || read.Kind != "Bundle" {
		t.Errorf("%+v", read)
	}
}

// TestArchiveIsBounded: a member for which there is no room is left out, those after it are not, and the
// archive stays one.
func TestArchiveIsBounded(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 600<<10)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(noise)
	for i := range noise {
		noise[i] |= 0x80 // no text, so that nothing in it looks like a secret
	}
	out := temporary(t)
	a := NewArchive(out, NewScrubber(), time.Unix(0, 0))
	if a.most != Most {
		t.Errorf("it may have %d bytes", a.most)
	}
	a.most = reserve + 1<<20
	for _, name := range []string{"first", "second", "third"} {
		if err := a.Add(name, noise, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Add("small", []byte("small"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Close("v1"); err != nil {
		t.Fatal(err)
	}
	if info, err := out.Stat(); err != nil || info.Size() > a.most {
		t.Errorf("it has %d bytes, %v", info.Size(), err)
	}
	members := opened(t, out)
	if members["small"] != "small" || len(members["first"]) != len(noise) || members["third"] != "" || !strings.Contains(members["MANIFEST.json"], "left out: with it the archive would be larger than 1 MiB") {
		t.Errorf("%d members", len(members))
	}
}

// TestScrubber: what is known to be secret goes, in whichever form, and so does what looks like one; what
// operators need stays.
func TestScrubber(t *testing.T) {
	t.Parallel()
	s := NewScrubber("swordfish", "short", `with "quotes"`, "-----first line of a key\nsecond line of the same key\n", "swordfish-and-more")
	for text, want := range map[string]string{
		"the word is swordfish.":                                               "the word is (secret).",
		"swordfish-and-more":                                                   "(secret)",
		"short words stay":                                                     "short words stay",
		`{"a":"with \"quotes\""}`:                                              `{"a":"(secret)"}`,
		"line: second line of the same key":                                    "line: (secret)",
		"Authorization: Bearer abcdefghij":                                     "Authorization: Bearer (secret)",
		"Authorization: Basic dXNlcjpwYXNz":                                    "Authorization: Basic (secret)",
		"token eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJr.c2ln-_":                       "token (secret)",
		"dial https://me:pa55@10.0.0.1:6443":                                   "dial https://me:(secret)@10.0.0.1:6443",
		"password=correcthorse, user=me":                                       "password=(secret), user=me",
		`"token": "0123456789"`:                                                `"token": "(secret)"`,
		"-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----": "(secret)",
		"shop/web:http/tcp4 on 10.96.0.1:80, KUBE-SVC-67NZLRHBNDSAWJRO":        "shop/web:http/tcp4 on 10.96.0.1:80, KUBE-SVC-67NZLRHBNDSAWJRO",
		"dial tcp 10.96.0.1:443: connection refused":                           "dial tcp 10.96.0.1:443: connection refused",
	} {
		if got := s.Text(text); got != want {
			t.Errorf("%q becomes %q; want %q", text, got, want)
		}
	}
}

// TestSettings: fields that are not in the list, and options that no schema describes or whose values are
// free text, are not told, and are looked for everywhere else.
func TestSettings(t *testing.T) {
	t.Parallel()
	allowed, secrets, err := Settings([]byte(`{"mode":"x","adminSocket":"/run/a","aNewField":"hush-hush",
		"plugins":{"x":{"path":"/p","aNewField":"hush-hush","options":{"backend":"nft","note":"free-text","size":7,"on":true,"unknown":"un-known","deep":{"er":["down-there"]},"many":12345678}}}}`),
		map[string][]byte{"x": []byte(`{"properties":{"backend":{"enum":["nft","legacy"]},"note":{"type":"string"},"size":{"type":"integer"},"on":{"type":"boolean"}}}`)})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"mode": "x", "adminSocket": "/run/a", "plugins": map[string]any{"x": map[string]any{
		"path": "/p", "options": map[string]any{"backend": "nft", "note": "(left out)", "size": 7.0, "on": true},
	}}}
	if !reflect.DeepEqual(allowed, want) {
		t.Errorf("told are %v; want %v", allowed, want)
	}
	for _, secret := range []string{"free-text", "un-known", "down-there"} {
		if !slices.Contains(secrets, secret) {
			t.Errorf("%s is not among the secrets %q", secret, secrets)
		}
	}
	if _, _, err := Settings([]byte("no JSON"), nil); err == nil {
		t.Error("what is no JSON was read")
	}
}

// TestCredentials: of a kubeconfig's users everything is secret but what says how it is read.
func TestCredentials(t *testing.T) {
	t.Parallel()
	users := []any{map[string]any{"name": "me", "user": map[string]any{
		"token": "the-token", "client-key": "key.pem", "tokenFile": "/tok", "client-key-data": "a2V5",
		"exec": map[string]any{"command": "login", "args": []any{"--secret", "the-arg"}, "env": []any{map[string]any{"name": "VAR", "value": "the-value"}}},
	}}}
	secrets, files := Credentials(users)
	slices.Sort(secrets)
	slices.Sort(files)
	if !slices.Equal(secrets, []string{"--secret", "a2V5", "the-arg", "the-token", "the-value"}) || !slices.Equal(files, []string{"/tok", "key.pem"}) {
		t.Errorf("secrets %q, files %q", secrets, files)
	}
}
