// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"slices"
	"strings"
	"testing"
)

// TestChartImages: each container has the smallest image with what it needs, or the configured one.
func TestChartImages(t *testing.T) {
	for set, want := range map[string][]string{
		"form=children,mode=ipvs":     {"ghcr.io/pointsman/pointsman:0.1.0"},
		"image.tag=1.2.3":             {"ghcr.io/pointsman/dataplane-iptables:1.2.3", "ghcr.io/pointsman/dataplane-nftables:1.2.3", "ghcr.io/pointsman/host:1.2.3"},
		"dataplanes={ipvs},mode=ipvs": {"ghcr.io/pointsman/dataplane-ipvs:0.1.0", "ghcr.io/pointsman/host:0.1.0"},
		"image.repository=r/all":      {"r/all:0.1.0", "r/all:0.1.0", "r/all:0.1.0"},
		"image.repository=r/host,dataplaneImage.repository=r/NAME-mine,dataplaneImage.tag=v2": {"r/iptables-mine:v2", "r/nftables-mine:v2", "r/host:0.1.0"},
		"image.digest=" + pinned("a"): {"ghcr.io/pointsman/dataplane-iptables:0.1.0", "ghcr.io/pointsman/dataplane-nftables:0.1.0", "ghcr.io/pointsman/host:0.1.0@" + pinned("a")},
		"image.digest=" + pinned("a") + ",dataplaneImage.digests.iptables=" + pinned("b") + ",dataplaneImage.digests.nftables=" + pinned("c"): {
			"ghcr.io/pointsman/dataplane-iptables:0.1.0@" + pinned("b"), "ghcr.io/pointsman/dataplane-nftables:0.1.0@" + pinned("c"), "ghcr.io/pointsman/host:0.1.0@" + pinned("a")},
		"form=children,image.tag=v2,image.digest=" + pinned("a"):                                    {"ghcr.io/pointsman/pointsman:v2@" + pinned("a")},
		"image.repository=r/all,image.digest=" + pinned("a"):                                        {"r/all:0.1.0@" + pinned("a"), "r/all:0.1.0@" + pinned("a"), "r/all:0.1.0@" + pinned("a")},
		"image.repository=r/host,image.digest=" + pinned("a") + ",dataplaneImage.repository=r/NAME": {"r/iptables:0.1.0", "r/nftables:0.1.0", "r/host:0.1.0@" + pinned("a")},
	} {
		var got []string
		containers := objects(t, render(t, "--set", set))["DaemonSet pointsman"].at("spec", "template", "spec").(map[string]any)["containers"].([]any)
		for _, c := range containers {
			got = append(got, c.(map[string]any)["image"].(string))
		}
		if !slices.Equal(got, want) {
			t.Errorf("with %s the images are %q, want %q", set, got, want)
		}
	}
}

// TestChartImageVolumes: the form of one container has a plugin's image as a volume if the cluster supports that, and
// else a copy of the program's folder.
func TestChartImageVolumes(t *testing.T) {
	const volume, copied = `image: {reference: "r/acme", pullPolicy: IfNotPresent}`, "command: [cp, -r, /opt/acme/., /plugins/acme]"
	for args, want := range map[string]string{
		"1.34.9 auto": copied, "1.35.0 auto": volume, "1.37.2-eks.1 auto": volume,
		"1.30.0 true": volume, "1.37.2 false": copied,
	} {
		version, value, _ := strings.Cut(args, " ")
		text := render(t, "--kube-version", version, "--set", "plugins[0].name=acme,plugins[0].image=r/acme,plugins[0].path=/opt/acme/run,form=children,mode=acme,imageVolumes="+value)
		path := map[string]string{volume: "/opt/acme/run", copied: "/run"}[want]
		if strings.Count(text, volume)+strings.Count(text, copied) != 1 || !strings.Contains(text, want) ||
			!strings.Contains(text, "{name: POINTSMAN_PLUGINS_ACME_PATH, value: /usr/libexec/pointsman-plugins/acme"+path+"}") {
			t.Errorf("on %s it is not %s:\n%s", args, want, text)
		}
	}
}
