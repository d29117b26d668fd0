// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// TestManifestWrittenInPlace has a process rewrite a manifest in place again and again, with a pause in the middle of
// each write: no request fails.
func TestManifestWrittenInPlace(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	backend(t, at(s.net+"101"))
	whole := strings.ReplaceAll(tcpService("web", "NET.10", 18080, "NET.101"), "NET.", s.net)
	half := whole[:strings.LastIndex(whole, ", port:")] // invalid YAML, however
	s.manifest("web.yaml", whole)
	s.start()
	s.served("tcp", s.net+"10:18080", at(s.net+"101"))

	writer := exec.CommandContext(t.Context(), "sh", "-c", `while :; do { printf "%s" "$HALF"; sleep 0.2; printf "%s" "$REST"; } >web.yaml; echo >>../written; done`)
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
	r := newClients(t, s.net+"10:18080")
	s.until("the manifest has been written 30 times", func() error {
		written, err := os.ReadFile(s.path("written"))
		if err == nil && len(written) < 30 {
			err = fmt.Errorf("%d times", len(written))
		}
		return err
	})
	stop()
	r.Done(t, "a manifest that is written in place")
	backend(t, at(s.net+"102"))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.102"))
	s.served("tcp", s.net+"10:18080", at(s.net+"102"))
}
