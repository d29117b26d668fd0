// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/bounded/boundedtest"
)

// A file that does not answer is a stale config, and keeps nothing waiting.
func TestFollowHungFile(t *testing.T) {
	hung, release := boundedtest.Hung(t)
	f := newFollow(t, write(t, "syncPeriod: 10s\n"))
	path := f.path
	link := func(to string) {
		t.Helper()
		if err := errors.Join(os.Symlink(to, path+".new"), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	link(filepath.Join(hung, "host.yaml"))
	begun := time.Now()
	f.want("refused: read config: host.yaml: its file system does not answer", 10*time.Second, true)
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("four looks took %s", took)
	}
	release()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	f.write(head + "syncPeriod: 20s\n")
	f.want("applied [syncPeriod] pending []", 20*time.Second, false)

	link("/proc/kmsg")
	f.want("refused: read config: host.yaml: it lies in procfs, whose files are no ordinary ones", 20*time.Second, true)
}
