// SPDX-License-Identifier: Apache-2.0

package test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// registry is the prefix of image names in manifests.
const registry = "ghcr.io/pointsman/"

// imageNames returns the names of the images that the Containerfile describes.
func imageNames(t *testing.T) (names []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^FROM scratch AS (\S+)$`).FindAllStringSubmatch(read(t, "../configs/container/Containerfile"), -1) {
		names = append(names, m[1])
	}
	return names
}

// TestImages: manifests run only images that the Containerfile describes.
func TestImages(t *testing.T) {
	manifests, err := filepath.Glob("../configs/kubernetes*/*.yaml")
	if err != nil || len(manifests) < 5 || len(imageNames(t)) < 6 {
		t.Fatalf("found only %q and %q: %v", manifests, imageNames(t), err)
	}
	for _, file := range manifests {
		for _, m := range regexp.MustCompile(`(?m)^ +image: `+registry+`([^:]+):[0-9.]+$`).FindAllStringSubmatch(read(t, file), -1) {
			if !slices.Contains(imageNames(t), m[1]) {
				t.Errorf("%s runs the image %s, which make images does not make", file, m[1])
			}
		}
	}
}

// digest is the digest of each image and of the chart in these tests, and of what is for a processor.
var digest = strings.Repeat("0123456789abcdef", 4)

func writeIn(t *testing.T, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o755)); err != nil {
		t.Fatal(err)
	}
}

// publish runs the script of the release workflow with programs in the place of those that need a registry and an
// identity. It returns the calls of these programs.
func publish(t *testing.T, tag, helmSays string, steps ...string) (calls string, err error) {
	t.Helper()
	dir := t.TempDir()
	for name, does := range map[string]string{
		"path/skopeo": `for a; do [ "$last" != --digestfile ] || echo sha256:` + digest + ` >"$a"; last=$a; done`,
		"path/cosign": "",
		"bin/helm":    `case $1 in package) echo packed >"bin/dist/pointsman-$4.tgz";; push) echo "` + helmSays + `" >&2;; esac`,
	} {
		writeIn(t, dir, name, fmt.Sprintf("#!/bin/sh\necho \"$(basename $0) $*\" >>calls\ncase \"$*\" in *--password-stdin) cat >/dev/null; exit;; esac\n%s\n", does))
	}
	var archive bytes.Buffer // of an image: an index with an image for a processor
	index := fmt.Sprintf(`{"manifests": [{"digest": "sha256:%s", "platform": {"architecture": "amd64"}}]}`, digest)
	w := tar.NewWriter(&archive)
	_ = w.WriteHeader(&tar.Header{Name: "blobs/sha256/" + digest, Mode: 0o644, Size: int64(len(index))}) // to memory
	_, _ = w.Write([]byte(index))
	_ = w.Close()
	for _, name := range imageNames(t) {
		writeIn(t, dir, "bin/images/"+name+".oci.tar", archive.String())
	}
	writeIn(t, dir, "bin/dist/checksums.txt", "")
	writeIn(t, dir, ".github/publish", read(t, "../.github/publish"))
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, ".github/publish"), steps...)
	cmd.Env = []string{"PATH=" + filepath.Join(dir, "path") + ":" + os.Getenv("PATH"), "REGISTRY=ghcr.io/pointsman", "GITHUB_REF_NAME=" + tag, "GITHUB_ACTOR=a", "TOKEN=secret"}
	if out, failed := cmd.CombinedOutput(); failed != nil {
		err = fmt.Errorf("%w: %s", failed, out)
	}
	return read(t, filepath.Join(dir, "calls")), err
}

// TestPublish: all images and the chart are pushed under the release's version, signed by their digests, and attested
// to. A pre-release does not become latest. Nothing is signed if a digest is not known.
func TestPublish(t *testing.T) {
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("needs jq: apt-get install jq")
	}
	calls, err := publish(t, "v1.2.3", "Digest: sha256:"+digest, "images", "chart", "sign", "attest")
	if err != nil || strings.Contains(calls, "secret") {
		t.Fatalf("%v; it calls\n%s", err, calls)
	}
	want := []string{"helm push bin/dist/pointsman-1.2.3.tgz oci://ghcr.io/pointsman/charts", "cosign sign --yes ghcr.io/pointsman/charts/pointsman@sha256:" + digest}
	for _, name := range imageNames(t) {
		at := registry + name + "@sha256:" + digest
		want = append(want,
			"skopeo copy --all --digestfile bin/digest.txt oci-archive:bin/images/"+name+".oci.tar docker://"+registry+name+":1.2.3",
			"skopeo copy --all docker://"+registry+name+":1.2.3 docker://"+registry+name+":latest",
			"cosign sign --yes "+at,
			"cosign attest --yes --type openvex --predicate bin/dist/pointsman.openvex.json "+at,
			"cosign attest --yes --type spdxjson --predicate bin/images/"+name+"_amd64.sbom.json "+at)
	}
	for _, call := range want {
		if !strings.Contains(calls, call+"\n") {
			t.Errorf("it does not call %s", call)
		}
	}
	if calls, err := publish(t, "v1.2.3-rc.1", "", "images"); err != nil || strings.Contains(calls, ":latest") {
		t.Errorf("for a pre-release it calls %q: %v", calls, err)
	}
	if calls, err := publish(t, "v1.2.3", "Pushed", "chart", "sign"); err == nil || !strings.Contains(err.Error(), "the digest of ghcr.io/pointsman/charts/pointsman") || strings.Contains(calls, "cosign") {
		t.Errorf("without a digest it calls %q: %v", calls, err)
	}
}
