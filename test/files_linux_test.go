// SPDX-License-Identifier: Apache-2.0

package test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/bounded/boundedtest"
)

// TestManifestWrittenInPlace has a process write a manifest anew again and again, each
// time with a pause in the middle, while requests run: none fails.
func TestManifestWrittenInPlace(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	backend(t, at(s.net+"101"))
	whole := strings.ReplaceAll(tcpService("web", "NET.10", 18080, "NET.101"), "NET.", s.net)
	half, _, _ := strings.Cut(whole, "\n- addresses") // a slice without endpoints
	s.manifest("web.yaml", whole)
	s.start()
	s.served("tcp", s.net+"10:18080", at(s.net+"101"))

	writer := exec.CommandContext(t.Context(), "sh", "-c", `while :; do { printf "%s" "$HALF"; sleep 0.2; printf "%s" "$REST"; } >web.yaml; done`)
	writer.Dir = s.path("services")
	writer.Env = append(os.Environ(), "HALF="+half, "REST="+strings.TrimPrefix(whole, half))
	writer.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := writer.Start(); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		_ = syscall.Kill(-writer.Process.Pid, syscall.SIGKILL)
		_ = writer.Wait()
	})
	defer stop()
	asked, failed := 0, 0
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); asked++ {
		if _, err := ask("tcp", s.net+"10:18080"); err != nil {
			failed++
			t.Logf("request %d: %v", asked, err)
		}
		time.Sleep(time.Millisecond)
	}
	if failed > 0 {
		t.Errorf("%d of %d requests failed", failed, asked)
	}
	stop()
	backend(t, at(s.net+"102"))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.102"))
	s.served("tcp", s.net+"10:18080", at(s.net+"102"))
}

// TestFilesThatHang gives a running host manifests and a config that cannot be read to
// their end: status says so, all else is followed, and a signal ends the host.
func TestFilesThatHang(t *testing.T) {
	t.Parallel()
	hung, _ := boundedtest.Hung(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		s := newSystem(t)
		backend(t, at(s.net+"101"))
		s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
		s.start()
		s.served("tcp", s.net+"10:18080", at(s.net+"101"))

		err := errors.Join(
			os.Symlink("/proc/kmsg", s.path("services/kmsg.yaml")),
			os.Symlink(filepath.Join(hung, "x"), s.path("services/hung.yaml")),
			syscall.Mkfifo(s.path("services/pipe.yaml"), 0o600),
			os.Symlink(filepath.Join(hung, "x"), s.path("next")),
			os.Rename(s.path("next"), s.path("host.yaml")),
		)
		if err != nil {
			t.Fatal(err)
		}
		s.until("status says what does not answer", func() error {
			st, err := s.Status(t.Context())
			if err != nil {
				return err
			}
			said := fmt.Sprintf("%+v", st.Warnings)
			for _, part := range []string{"kmsg.yaml:1: reading: it lies in procfs", "hung.yaml:1: reading: its file system does not answer", "pipe.yaml:1: reading: it is no ordinary file but a pipe", "host.yaml: its file system does not answer"} {
				if !strings.Contains(said, part) {
					return fmt.Errorf("warnings %s", said)
				}
			}
			return nil
		})
		s.manifest("new.yaml", tcpService("new", "NET.12", 18080, "NET.101"))
		s.served("tcp", s.net+"12:18080", at(s.net+"101"))
		begun := time.Now()
		s.signal(sig)
		if took := time.Since(begun); took > 30*time.Second { // 3 s, and what a busy machine needs
			t.Errorf("the host ended %s after %s", took, sig)
		}
	}
}
