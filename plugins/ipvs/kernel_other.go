// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package ipvs

import (
	"context"
	"os"

	"github.com/pointsman/pointsman/sdk"
)

func (p *plugin) probe(context.Context, options) error {
	return &sdk.Refusal{Why: "only Linux has IPVS"}
}

func openKernel() (kernel, error) { return kernel{}, &sdk.Refusal{Why: "only Linux has IPVS"} }

func (p *plugin) hold(*os.File) {}

func (p *plugin) reach(context.Context) (kernel, error) {
	return kernel{}, &sdk.Refusal{Why: "only Linux has IPVS"}
}

func (k kernel) close() {}
