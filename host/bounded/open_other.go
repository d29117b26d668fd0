// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package bounded

import "os"

const nonBlocking = 0

func pseudo(*os.File) string { return "" }
