// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package iptables

import (
	"errors"

	"github.com/pointsman/pointsman/sdk"
)

func translated(sdk.Family, func(flow)) error { return errors.ErrUnsupported }
