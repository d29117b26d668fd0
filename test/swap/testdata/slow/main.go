// SPDX-License-Identifier: Apache-2.0

// Slow is a plugin that serves nothing. While the file "gate" is beside its binary, it does not
// finish an update of 100 Services or more, and writes its process id to "updating". After each
// update it writes the number of its Services to "served".
package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

func main() {
	d := sdk.Description{Name: "slow", Version: "0.0.0", Features: sdk.Features}
	beside := "."
	if binary, err := os.Executable(); err == nil {
		beside = filepath.Dir(binary)
	}
	wire.Serve(d, sdk.WholeOf(d, sdk.Parts{Serve: func(ctx context.Context, _ sdk.Setup, s sdk.State) error {
		return serve(ctx, beside, len(s.Services))
	}}))
}

func serve(ctx context.Context, beside string, services int) error {
	for services >= 100 {
		if _, err := os.Stat(filepath.Join(beside, "gate")); err != nil {
			break
		}
		if err := write(beside, "updating", os.Getpid()); err != nil {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return write(beside, "served", services)
}

// write replaces a file as a whole.
func write(dir, name string, number int) error {
	next := filepath.Join(dir, name+".new")
	if err := os.WriteFile(next, []byte(strconv.Itoa(number)), 0o600); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(dir, name))
}
