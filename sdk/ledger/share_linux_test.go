// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestShare: the next process reads the holders of an object, one process at a time has its lock,
// and a missing or damaged file has no holders.
func TestShare(t *testing.T) {
	l, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	open := func() *Share {
		t.Helper()
		s, err := l.Share(t.Context(), "Thing")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	if !s.Add("ipvs") || !s.Add("iptables") || s.Add("ipvs") {
		t.Error("a new holder was not reported")
	}
	s.Facts["made by"] = "us"
	if err := s.Save(); err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Share(soon, "Thing"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("two processes have the lock: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open()
	if !slices.Equal(s.Holders, []string{"iptables", "ipvs"}) || s.Facts["made by"] != "us" {
		t.Errorf("read back: %q, %q", s.Holders, s.Facts)
	}
	if !s.Remove("ipvs") || s.Remove("ipvs") || !s.Remove("iptables") {
		t.Error("a removed holder was not reported")
	}
	delete(s.Facts, "made by")
	if err := errors.Join(s.Save(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.file); err == nil {
		t.Errorf("%s is still there", filepath.Base(s.file))
	}
	for _, broken := range []string{"", "{", "[]", `{"Holders": 7}`} {
		if err := os.WriteFile(s.file, []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		s := open()
		if len(s.Holders) > 0 || s.Facts == nil {
			t.Errorf("of %q it read %q, %q", broken, s.Holders, s.Facts)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
