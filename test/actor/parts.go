// SPDX-License-Identifier: Apache-2.0

package actor

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pointsman/pointsman/sdk"
)

// PartEnv lets a test binary play another part than running tests: the tests start it as plugins and hosts.
const PartEnv = "POINTSMAN_TEST_PART"

// Main plays the part that the environment names. Without one it runs the tests, and fails if
// they leave goroutines behind.
func Main(m *testing.M, parts map[string]func()) {
	if part, ok := os.LookupEnv(PartEnv); ok {
		parts[part]()
		return
	}
	exit := m.Run()
	if err := goleak.Find(); err != nil && exit == 0 {
		fmt.Fprintln(os.Stderr, "after all tests:", err)
		exit = 1
	}
	os.Exit(exit)
}

// As returns this binary, and the environment in which it plays a part.
func As(part string) (path string, env []string) {
	self, err := os.Executable()
	if err != nil {
		panic(err) // a test binary knows its path
	}
	// With the race detector a process would take a second to exit.
	return self, []string{PartEnv + "=" + part, "GORACE=atexit_sleep_ms=0"}
}

// Soon returns a context with a deadline for what usually takes milliseconds.
func Soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// ShortDir returns a folder with a short path, for the test: the path of t.TempDir contains the test's name, and may
// leave too little of the 107 bytes of a socket's path.
func ShortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "w")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Full returns the update of a session that names everything.
func Full(to uint64, set ...sdk.Service) sdk.Update {
	return sdk.Update{To: to, Full: true, Set: set}
}
