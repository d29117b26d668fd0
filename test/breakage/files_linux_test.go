// SPDX-License-Identifier: Apache-2.0

package breakage

import (
	"os"
	"time"
)

// ofFiles are those of what people write.
var ofFiles = []fault{
	{name: "manifest-half-written", do: manifestHalfWritten},
	{name: "manifest-bad", do: manifestBad},
	{name: "manifests-away", do: manifestsAway},
	{name: "config-half-written", do: func(n *node) { n.misconfigured(n.settings(n.mode)[:200+n.IntN(100)]) }},
	{name: "config-empty", do: func(n *node) { n.misconfigured("") }},
	{name: "config-nonsense", do: func(n *node) { n.misconfigured("mode: [\n") }},
	{name: "config-gone", do: configGone},
}

// manifestHalfWritten writes the manifest that all callers depend on in place, in pieces,
// as an editor may.
func manifestHalfWritten(n *node) {
	for range 5 {
		f, err := os.OpenFile(n.path("services/web.yaml"), os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			n.Fatal(err)
		}
		for left := web; left != ""; {
			count := min(len(left), 1+n.IntN(len(web)))
			if _, err := f.WriteString(left[:count]); err != nil {
				n.Fatal(err)
			}
			left = left[count:]
			time.Sleep(time.Duration(n.IntN(90)) * time.Millisecond)
		}
		if err := f.Close(); err != nil {
			n.Fatal(err)
		}
		time.Sleep(time.Duration(n.IntN(1500)) * time.Millisecond)
	}
}

// manifestBad has one with an error in it. What it said before stays.
func manifestBad(n *node) {
	n.write("services/web.yaml", web+"---\napiVersion: v1\nkind: Service\nmetadata: {name: odd, namespace: shop}\nspec: {clusterIP: nonsense, ports: [{port: 80}]}\n")
	n.shows(soon, warning("W007", "web.yaml"))
	n.write("services/web.yaml", web)
}

// manifestsAway has the folder gone for a while.
func manifestsAway(n *node) {
	if err := os.Rename(n.path("services"), n.path("away")); err != nil {
		n.Fatal(err)
	}
	n.shows(soon, warned("W007", "W008"))
	if err := os.Rename(n.path("away"), n.path("services")); err != nil {
		n.Fatal(err)
	}
}

// misconfigured has a config file that is no good, written in place.
func (n *node) misconfigured(text string) {
	n.Helper()
	if err := os.WriteFile(n.path("host.yaml"), []byte(text), 0o644); err != nil {
		n.Fatal(err)
	}
	n.shows(soon, warning("W005", ""))
	n.configure(n.mode)
}

func configGone(n *node) {
	if err := os.Remove(n.path("host.yaml")); err != nil {
		n.Fatal(err)
	}
	n.shows(soon, warning("W005", ""))
	n.configure(n.mode)
}
