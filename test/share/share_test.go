// SPDX-License-Identifier: Apache-2.0

package share

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// names are divided between the processes of TestTake.
var names = []string{"TestA", "TestA/with/parts", "TestB", "C05/ten-thousand-services"}

// TestTake runs this program several times at once: each name is taken by exactly one of them, also if it asks twice.
func TestTake(t *testing.T) {
	const asks = "POINTSMAN_SHARE_TEST"
	if os.Getenv(asks) != "" {
		for _, name := range slices.Concat(names, names) {
			if Take(name) {
				fmt.Println("took", name)
			}
		}
		return
	}
	dir := t.TempDir()
	outs := make(chan string)
	for range 4 {
		go func() { // ends with its process
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTake$")
			cmd.Env = append(os.Environ(), Variable+"="+dir, asks+"=1")
			out, err := cmd.CombinedOutput()
			outs <- fmt.Sprint(string(out), err)
		}()
	}
	var all strings.Builder
	for range 4 {
		all.WriteString(<-outs)
	}
	for _, name := range names {
		if n := strings.Count(all.String(), "took "+name+"\n"); n != 2 {
			t.Errorf("%s was taken %d times by 4 processes that ask twice, not by one of them:\n%s", name, n, all.String())
		}
	}
}
