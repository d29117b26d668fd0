// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package ledger

import (
	"errors"

	"github.com/pointsman/pointsman/sdk"
)

// namespace is not supported: only Linux has network namespaces. So Open returns an error, and
// no other function of this file is called.
func namespace() (string, error) { return "", errors.ErrUnsupported }

func mayMake(string) error { return nil }

func busy(mode, _ string) *sdk.Busy { return &sdk.Busy{Mode: mode} }
