// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/helper"
)

// keptDir is a dataplane that remembers where it was to clean up.
type keptDir struct{ cleaned string }

func (*keptDir) Configure(context.Context, sdk.Setup) (sdk.Description, error) {
	return sdk.Description{Name: "kept", Version: "1"}, nil
}
func (*keptDir) Sync(context.Context, sdk.Update) (sdk.Result, error) { return sdk.Result{}, nil }
func (*keptDir) SetRole(context.Context, sdk.Role) error              { return nil }
func (k *keptDir) Cleanup(_ context.Context, l sdk.Leftovers) ([]string, error) {
	k.cleaned = l.StateDir
	return nil, nil
}

// TestVitalsNameHelpers: what a dataplane has declared is in its vitals, with its memory, and a note
// says which of it has ended. Cleanup is told the directory in which it is declared.
func TestVitalsNameHelpers(t *testing.T) {
	dp, stateDir := &keptDir{}, t.TempDir()
	remote, err := Local(t.Context(), sdk.Description{Name: "kept", Version: "1"}, dp)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(remote.Shutdown(context.Background()), remote.Close()) }()
	if _, err := remote.Configure(t.Context(), sdk.Setup{StateDir: stateDir}); err != nil {
		t.Fatal(err)
	}
	vitals := func() Vitals {
		t.Helper()
		v, err := remote.Vitals(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := vitals(); len(v.Helpers) > 0 || v.TotalMemory() != v.Memory {
		t.Errorf("before there are any: %+v", v.Helpers)
	}
	p, err := helper.Start(t.Context(), helper.Dir(stateDir), helper.Command{Name: "daemon", Path: "/bin/sleep", Args: []string{"600"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.End(context.Background(), 0) }()
	v := vitals()
	if len(v.Helpers) != 1 || v.Helpers[0].PID != p.PID() || v.Helpers[0].Name != "daemon" || v.Helpers[0].Path != "/bin/sleep" || len(v.Notes) > 0 {
		t.Errorf("%+v, %q; want %s", v.Helpers, v.Notes, p)
	}
	if v.TotalMemory() <= v.Memory {
		t.Errorf("%d bytes, and in all %d", v.Memory, v.TotalMemory())
	}
	if err := p.Signal(os.Kill); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Done():
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
	if v := vitals(); len(v.Helpers) != 1 || v.Helpers[0].PID != 0 || len(v.Notes) != 1 || !strings.Contains(v.Notes[0], "has ended") {
		t.Errorf("after its end: %+v, %q", v.Helpers, v.Notes)
	}
	for asked, want := range map[string]string{"": stateDir, "/another": "/another"} {
		if _, err := remote.Cleanup(t.Context(), sdk.Leftovers{StateDir: asked}); err != nil || dp.cleaned != want {
			t.Errorf("Cleanup of %q was told %q, %v", asked, dp.cleaned, err)
		}
	}
}
