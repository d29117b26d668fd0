// SPDX-License-Identifier: Apache-2.0

package wire

import "os"

// owned is for the system's administrator to see to: Windows has access control lists
// instead of owners.
func owned(string, os.FileInfo) error { return nil }
