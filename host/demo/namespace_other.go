// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package demo

import (
	"context"
	"io"
)

// Other systems have no network namespaces.

func inside() bool                           { return false }
func again(context.Context, io.Writer) error { return errNoNamespace }
func raise() error                           { return nil }
