// SPDX-License-Identifier: Apache-2.0

package helper_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/pointsman/pointsman/sdk/helper"
)

// A dataplane that serves by a daemon looks for the one that a former process of it left, and
// starts one only if there is none.
func Example() {
	stateDir, _ := os.MkdirTemp("", "") // Setup.StateDir
	defer os.RemoveAll(stateDir)
	dir := helper.Dir(stateDir)

	daemon := func(ctx context.Context) (*helper.Process, error) {
		p, err := helper.Find(dir, "daemon")
		if errors.Is(err, helper.ErrNone) {
			p, err = helper.Start(ctx, dir, helper.Command{Name: "daemon", Path: "/bin/sleep", Args: []string{"3600"}})
		}
		return p, err
	}
	first, err := daemon(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	again, _ := daemon(context.Background())
	fmt.Println("the same process:", first.PID() == again.PID())

	_ = again.End(context.Background(), time.Second) // in Cleanup
	_, err = helper.Find(dir, "daemon")
	fmt.Println(errors.Is(err, helper.ErrNone))
	// Output:
	// the same process: true
	// true
}
