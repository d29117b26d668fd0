// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A versionInfo is what `version -o json` prints.
type versionInfo struct {
	admin.Meta
	Version    string   `json:"version"`          // a tag, or v0.0.0 with the commit and its time; see wire.Build
	Commit     string   `json:"commit,omitempty"` // empty if the toolchain did not record it
	WireMajor  uint32   `json:"wireMajor"`        // the newest supported version of the plugin protocol
	WireMajors []uint32 `json:"wireMajors"`       // all supported versions
	Kubernetes string   `json:"kubernetes"`       // the version of k8s.io/client-go
	Go         string   `json:"go"`
	Platform   string   `json:"platform"`
}

func versionVerb() *cobra.Command {
	return printing(verb("version", "Print the version", cobra.NoArgs), func(*cobra.Command, []string) (versionInfo, error) { return version(), nil }, func(w io.Writer, v versionInfo) {
		fmt.Fprintf(w, "pointsman %s (wire major %d, Kubernetes library %s, %s, %s)\n", v.Version, v.WireMajor, v.Kubernetes, v.Go, v.Platform)
	})
}

// version returns what the Go toolchain recorded in this program.
func version() versionInfo {
	v := versionInfo{
		Meta:    admin.Meta{APIVersion: admin.APIVersion, Kind: "Version"},
		Version: wire.Build(), WireMajor: wire.Major, WireMajors: wire.Majors(),
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Commit = s.Value
		}
	}
	for _, d := range info.Deps {
		if d.Path == "k8s.io/client-go" {
			v.Kubernetes = d.Version
		}
	}
	return v
}
