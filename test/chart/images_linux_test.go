// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"slices"
	"testing"
)

// TestChartImages: each container has the image with no more than it needs, or the one that is set.
func TestChartImages(t *testing.T) {
	for set, want := range map[string][]string{
		"form=children,mode=ipvs":     {"ghcr.io/pointsman/pointsman:0.1.0"},
		"image.tag=1.2.3":             {"ghcr.io/pointsman/dataplane-iptables:1.2.3", "ghcr.io/pointsman/dataplane-nftables:1.2.3", "ghcr.io/pointsman/host:1.2.3"},
		"dataplanes={ipvs},mode=ipvs": {"ghcr.io/pointsman/dataplane-ipvs:0.1.0", "ghcr.io/pointsman/host:0.1.0"},
		"image.repository=r/all":      {"r/all:0.1.0", "r/all:0.1.0", "r/all:0.1.0"},
		"image.repository=r/host,dataplaneImage.repository=r/NAME-mine,dataplaneImage.tag=v2": {"r/iptables-mine:v2", "r/nftables-mine:v2", "r/host:0.1.0"},
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
