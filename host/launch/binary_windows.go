// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"os"

	"github.com/pointsman/pointsman/sdk/statefile"
)

func executable(string, os.FileInfo) error { return nil }

func unstarted(_ string, err error) error { return err }

// guardedWell reports which users may change the binary though they could not change the
// host: for such a one it would be a way to the plugin's privileges.
func guardedWell(path string, _ os.FileInfo) error {
	host, err := os.Executable()
	if err != nil {
		return fmt.Errorf("ask what this process executes: %w", err)
	}
	return statefile.GuardedFile(path, host)
}
