// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk/wire"
)

// begun is a loop that has launched what is installed, and is in that state since then.
func begun(t *testing.T, s State) *loop {
	t.Helper()
	dir := t.TempDir()
	p := Plugin{Name: "test", Path: filepath.Join(dir, "plugin"), StateDir: dir}
	if err := os.WriteFile(p.Path, []byte("new"), 0o755); err != nil {
		t.Fatal(err)
	}
	l := &loop{Supervisor: New(p, quiet()), now: time.Now}
	l.machine = Machine{State: s, Up: time.Now().Add(-proof), Launches: 1}
	l.binary = identify(p.Path)
	return l
}

// TestProof keeps a binary that has served for long, and no other.
func TestProof(t *testing.T) {
	for name, c := range map[string]struct {
		but  func(*loop)
		want bool
	}{
		"has served for long":    {func(*loop) {}, true},
		"has not":                {func(l *loop) { l.machine.Up = l.machine.Up.Add(time.Minute) }, false},
		"is suspect":             {func(l *loop) { l.machine.State = Suspect }, false},
		"was fallen back to":     {func(l *loop) { l.machine.Fallback = true }, false},
		"is another program's":   {func(l *loop) { l.plugin.Address = "unix:///run/x.sock" }, false},
		"was replaced meanwhile": {func(l *loop) { _ = os.WriteFile(l.plugin.Path, []byte("another"), 0o755) }, false},
	} {
		l := begun(t, Serving)
		c.but(l)
		l.prove()
		if _, err := os.Stat(goodFile(l.plugin.StateDir)); (err == nil) != c.want {
			t.Errorf("one that %s: kept %t, want %t", name, err == nil, c.want)
		}
	}
}

// TestFallsBackWhen it failed, to that very content, and not where someone says what
// the binary must be.
func TestFallsBackWhen(t *testing.T) {
	for name, c := range map[string]struct {
		kind EventKind
		but  func(*loop)
		want bool
	}{
		"failed":                {Failed, func(*loop) {}, true},
		"ended":                 {Exited, func(*loop) {}, true},
		"hung":                  {Hung, func(*loop) {}, true},
		"is silent":             {Tick, func(l *loop) { l.machine.State = Suspect }, true},
		"is well":               {Beat, func(*loop) {}, false},
		"is held to a hash":     {Failed, func(l *loop) { l.plugin.SHA256 = "00" }, false},
		"is another program's":  {Failed, func(l *loop) { l.plugin.Address = "unix:///run/x.sock" }, false},
		"is what proved itself": {Failed, func(l *loop) { _ = os.WriteFile(l.plugin.Path, []byte("good"), 0o755) }, false},
	} {
		l := begun(t, Serving)
		good := filepath.Join(t.TempDir(), "good")
		if err := os.WriteFile(good, []byte("good"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := keepGood(l.plugin.StateDir, good); err != nil {
			t.Fatal(err)
		}
		c.but(l)
		if got := l.fallsBack(c.kind); got != c.want {
			t.Errorf("one that %s: falls back %t, want %t", name, got, c.want)
		}
		sum, err := sumOf(good)
		if p := l.plugin.good(); c.want && (err != nil || p.SHA256 != sum) {
			t.Errorf("one that %s: %s would be run by the hash %q, want %q, %v", name, p.Path, p.SHA256, sum, err)
		}
	}
}

// quiet are hooks that tell nothing, with a session that lasts as long as its process.
func quiet() Hooks {
	return Hooks{
		Session:    func(ctx context.Context, _ Life) error { <-ctx.Done(); return nil },
		Transition: func(Transition) {},
		Log:        func(wire.LogLine) {},
		Beat:       func(*wire.Remote, wire.Vitals) {},
	}
}
