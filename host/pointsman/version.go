// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A versionInfo is what `version -o json` prints.
type versionInfo struct {
	admin.Meta
	Version   string `json:"version"`
	WireMajor uint32 `json:"wireMajor"`
	Go        string `json:"go"`
	Platform  string `json:"platform"`
}

func versionVerb() *cobra.Command {
	c := &cobra.Command{Use: "version", Short: "Say which version this is", Args: noWords()}
	out := addFormat(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		v := versionInfo{admin.Meta{APIVersion: admin.APIVersion, Kind: "Version"}, wire.Build(), wire.Major, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
		return out.print(c.OutOrStdout(), v, func(w io.Writer) {
			fmt.Fprintf(w, "pointsman %s (wire major %d, %s, %s)\n", v.Version, v.WireMajor, v.Go, v.Platform)
		})
	}
	return c
}
