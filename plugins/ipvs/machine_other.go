// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package ipvs

import (
	"context"

	"github.com/pointsman/pointsman/sdk"
)

var onlyLinux = &sdk.Refusal{Why: "only Linux has IPVS"}

func thisMachine() machine {
	return machine{
		probe: func(context.Context, options) error { return onlyLinux },
		open:  func(bool) (kernel, error) { return kernel{}, onlyLinux },
	}
}
