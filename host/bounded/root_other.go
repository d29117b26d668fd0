// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package bounded

import "errors"

// ReadFileIn is not supported here: only Linux opens files below the root of another process.
func ReadFileIn(string, string, int64) ([]byte, error) { return nil, errors.ErrUnsupported }
