// SPDX-License-Identifier: Apache-2.0

package test

import (
	"archive/tar"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// digest is the digest of each image and of the chart in these tests.
var digest = strings.Repeat("0123456789abcdef", 4)

// publish runs the script of the release workflow with programs in the place of those that need a registry and an
// identity. It returns the calls of these programs and the script's folder.
func publish(t *testing.T, tag, helmSays string, steps ...string) (calls []string, dir string, err error) {
	t.Helper()
	dir = t.TempDir()
	log := filepath.Join(dir, "calls")
	program := func(name, does string) {
		text := fmt.Sprintf("#!/bin/sh\necho \"$(basename $0) $*\" >>%s\ncase \"$*\" in *--password-stdin) cat >/dev/null; exit;; esac\n%s\n", log, does)
		writeIn(t, dir, name, text)
	}
	program("path/skopeo", `for a; do [ "$last" != --digestfile ] || echo sha256:`+digest+` >"$a"; last=$a; done`)
	program("path/cosign", "")
	program("bin/helm", `case $1 in package) echo packed >"bin/dist/pointsman-$4.tgz";; push) echo "`+helmSays+`" >&2;; esac`)
	writeIn(t, dir, "bin/dist/checksums.txt", "")
	for _, name := range imageNames(t) {
		writeIn(t, dir, "bin/images/"+name+".oci.tar", archive(t))
	}
	writeIn(t, dir, ".github/publish", read(t, "../.github/publish"))
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, ".github/publish"), steps...)
	cmd.Env = []string{"PATH=" + filepath.Join(dir, "path") + ":" + os.Getenv("PATH"), "REGISTRY=ghcr.io/pointsman", "GITHUB_REF_NAME=" + tag, "GITHUB_ACTOR=a", "TOKEN=secret"}
	if out, failed := cmd.CombinedOutput(); failed != nil {
		err = fmt.Errorf("%w: %s", failed, out)
	}
	text, _ := os.ReadFile(log)
	return strings.Split(strings.TrimSpace(string(text)), "\n"), dir, err
}

// platformDigest returns the digest of the image for a processor.
func platformDigest(arch string) string { return "sha256:" + digest[:64-len(arch)] + arch }

// archive returns the archive of an image, as far as publish reads it: an index with an image for each of two
// processors.
func archive(t *testing.T) string {
	t.Helper()
	var manifests []string
	for _, arch := range []string{"amd64", "s390x"} {
		manifests = append(manifests, fmt.Sprintf(`{"digest": %q, "platform": {"architecture": %q}}`, platformDigest(arch), arch))
	}
	index := `{"manifests": [` + strings.Join(manifests, ",") + `]}`
	var out strings.Builder
	w := tar.NewWriter(&out)
	if err := w.WriteHeader(&tar.Header{Name: "blobs/sha256/" + digest, Mode: 0o644, Size: int64(len(index))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(index)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func writeIn(t *testing.T, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestPublish: all images and the chart are pushed under the release's version, and signed by their digests.
func TestPublish(t *testing.T) {
	calls, dir, err := publish(t, "v1.2.3", "Digest: sha256:"+digest, "images", "chart", "sign")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"helm push bin/dist/pointsman-1.2.3.tgz oci://ghcr.io/pointsman/charts", "cosign sign --yes ghcr.io/pointsman/charts/pointsman@sha256:" + digest}
	sums := []string{digest + "  ghcr.io/pointsman/charts/pointsman"}
	for _, name := range imageNames(t) {
		want = append(want,
			"skopeo copy --all --digestfile bin/digest.txt oci-archive:bin/images/"+name+".oci.tar docker://"+registry+name+":1.2.3",
			"skopeo copy --all docker://"+registry+name+":1.2.3 docker://"+registry+name+latest,
			"cosign sign --yes "+registry+name+"@sha256:"+digest)
		sums = append(sums, digest+"  "+registry+name)
	}
	for _, call := range want {
		if !slices.Contains(calls, call) {
			t.Errorf("it does not call %s", call)
		}
	}
	if text := strings.Join(calls, "\n"); strings.Contains(text, "secret") {
		t.Errorf("the token is in what programs are called with: %s", text)
	}
	got := strings.Split(strings.TrimSpace(read(t, filepath.Join(dir, "bin/pushed.sha256"))), "\n")
	slices.Sort(got)
	slices.Sort(sums)
	if !slices.Equal(got, sums) {
		t.Errorf("pushed.sha256 has %q, want %q", got, sums)
	}
	if text := read(t, filepath.Join(dir, "bin/dist/checksums.txt")); !strings.HasSuffix(text, "  pointsman-1.2.3.tgz\n") {
		t.Errorf("the checksums that are signed are %q, without the chart's", text)
	}
}

// TestPublishAttests: the SBOM of each processor's image is attested to that image, and the OpenVEX document to the
// index, too. The chart has neither.
func TestPublishAttests(t *testing.T) {
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("needs jq: apt-get install jq")
	}
	calls, _, err := publish(t, "v1.2.3", "Digest: sha256:"+digest, "images", "chart", "attest")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, name := range imageNames(t) {
		want = append(want, "cosign attest --yes --type openvex --predicate bin/dist/pointsman.openvex.json "+registry+name+"@sha256:"+digest)
		for _, arch := range []string{"amd64", "s390x"} {
			want = append(want,
				"cosign attest --yes --type spdxjson --predicate bin/images/"+name+"_"+arch+".sbom.json "+registry+name+"@"+platformDigest(arch),
				"cosign attest --yes --type openvex --predicate bin/dist/pointsman.openvex.json "+registry+name+"@"+platformDigest(arch))
		}
	}
	got := slices.DeleteFunc(calls, func(call string) bool { return !strings.HasPrefix(call, "cosign attest") })
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("it attests\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestPublishPreRelease: a pre-release does not become latest.
func TestPublishPreRelease(t *testing.T) {
	calls, _, err := publish(t, "v1.2.3-rc.1", "", "images")
	if err != nil || strings.Contains(strings.Join(calls, "\n"), latest) {
		t.Errorf("it calls %q: %v", calls, err)
	}
}

// TestPublishNeedsDigests: publish fails before it signs anything if the digest of a push is not known.
func TestPublishNeedsDigests(t *testing.T) {
	calls, _, err := publish(t, "v1.2.3", "Pushed", "chart", "sign")
	if err == nil || !strings.Contains(err.Error(), "the digest of ghcr.io/pointsman/charts/pointsman") || strings.Contains(strings.Join(calls, "\n"), "cosign") {
		t.Errorf("it calls %q: %v", calls, err)
	}
}
