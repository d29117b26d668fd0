// SPDX-License-Identifier: Apache-2.0

//go:build unix

package launch

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
	"github.com/pointsman/pointsman/test/eventually"
)

// hostKilled starts a host that launches a plugin, kills it with SIGKILL while
// the plugin prints, and returns how to reach the plugin.
func hostKilled(t *testing.T, plugin string) Handle {
	t.Helper()
	c := part("host", "", "POINTSMAN_TEST_DIR="+shortDir(t), "POINTSMAN_TEST_PLUGIN="+plugin)
	host := byExec(c)
	host.Stderr = os.Stderr
	stdout, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	var h Handle
	decodeErr := json.NewDecoder(stdout).Decode(&h)
	host.Process.Kill()
	host.Wait()
	if decodeErr != nil {
		t.Fatal(decodeErr)
	}
	t.Cleanup(func() { syscall.Kill(h.PID, syscall.SIGKILL) })
	return h
}

// A plugin whose host was killed lives, prints on, and takes the next host.
func TestAKilledHostLeavesItsPlugin(t *testing.T) {
	t.Parallel() // it mostly waits
	h := hostKilled(t, "serve")
	r, err := Attach(soon(t), h)
	if err != nil {
		t.Fatal(err)
	}
	lines := read(t, r)
	eventually.True(t, "its last line is logged", func() bool { return contains(lines(), "all is said") })
	configured(t, r, order{})
	if _, err := r.Sync(soon(t), full(1)); err != nil {
		t.Error(err)
	}
	if err := r.Stop(soon(t)); err != nil {
		t.Error(err)
	}
	if _, err := StartTime(h.PID); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("process %d after Stop: %v; want that it is done", h.PID, err)
	}
	if _, err := os.Stat(h.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s after Stop: %v; want that it is gone", h.Dir, err)
	}
	if _, err := Attach(soon(t), h); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("Attach after Stop: %v; want that the process is done", err)
	}
}

// The death of a process that is no child is seen too.
func TestAttachSeesTheEnd(t *testing.T) {
	r, err := Attach(soon(t), hostKilled(t, "serve"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	syscall.Kill(r.Handle().PID, syscall.SIGKILL)
	<-r.Exited()
	if e := r.Exit(); e.Code != -1 || !strings.Contains(e.String(), "it is not known how") {
		t.Errorf("it %s", e)
	}
	if err := r.Stop(soon(t)); err != nil {
		t.Error(err)
	}
}

func TestAttachTrustsNobodyElse(t *testing.T) {
	r := configured(t, launched(t, "serve"), order{})
	other := launched(t, "serve")
	cert, key, err := newKeys()
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		change func(*Handle)
		want   string
	}{
		{"another process", func(h *Handle) { h.Start++ }, "is another one now"},
		{"another nonce", func(h *Handle) { h.Nonce = "x" }, "not the process that was left here"},
		{"another key", func(h *Handle) { h.Cert, h.Key = cert, key }, "ask the plugin what it is"},
		{"another certificate", func(h *Handle) { h.Peer = other.Handle().Peer }, "ask the plugin what it is"},
		{"another socket", func(h *Handle) { h.Address = other.Handle().Address }, "the socket belongs to process"},
		{"no key", func(h *Handle) { h.Cert, h.Key = nil, nil }, "ask the plugin what it is"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := r.Handle()
			test.change(&h)
			a, err := Attach(soon(t), h)
			if err == nil {
				a.Close()
				t.Fatal("it attached")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v; want %q in it", err, test.want)
			}
		})
	}
	if _, err := r.Vitals(soon(t)); err != nil {
		t.Errorf("the plugin after all that: %v", err)
	}
}

// A host that comes back to life after another has taken over is fenced off.
func TestTheSecondHostFencesTheFirst(t *testing.T) {
	first := configured(t, launched(t, "serve"), order{Wait: true})
	running := make(chan error, 1)
	go func() {
		_, err := first.Sync(soon(t), full(1))
		running <- err
	}()
	eventually.True(t, "Sync runs", func() bool {
		v, err := first.Vitals(soon(t))
		return err == nil && v.Call == "Sync"
	})
	second, err := Attach(soon(t), first.Handle())
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	configured(t, second, order{})
	if err := <-running; !errors.Is(err, wire.ErrFenced) {
		t.Errorf("the running Sync: %v; want wire.ErrFenced", err)
	}
	if _, err := first.Sync(soon(t), full(2)); !errors.Is(err, wire.ErrFenced) {
		t.Errorf("Sync: %v; want wire.ErrFenced", err)
	}
	if err := first.SetRole(soon(t), sdk.Active); !errors.Is(err, wire.ErrFenced) {
		t.Errorf("SetRole: %v; want wire.ErrFenced", err)
	}
	if _, err := first.Cleanup(soon(t), sdk.Leftovers{}); !errors.Is(err, wire.ErrFenced) {
		t.Errorf("Cleanup: %v; want wire.ErrFenced", err)
	}
	if err := first.Stop(soon(t)); !errors.Is(err, wire.ErrFenced) {
		t.Errorf("Stop: %v; want wire.ErrFenced", err)
	}
	if _, err := second.Sync(soon(t), sdk.Update{To: 5, From: 1}); !errors.Is(err, sdk.ErrResync) {
		t.Errorf("the second host's first update: %v; want ErrResync", err)
	}
	if _, err := second.Sync(soon(t), full(1)); err != nil {
		t.Errorf("the second host's Full: %v", err)
	}
	if err := second.Stop(soon(t)); err != nil {
		t.Error(err)
	}
}

func TestHandleHidesItsKey(t *testing.T) {
	h := Handle{Target: wire.Target{Network: "unix", Address: "/s", Key: []byte("secret")}, PID: 4}
	if s := h.String(); s != "unix:///s (pid 4)" {
		t.Errorf("got %s", s)
	}
	var back Handle
	out, err := json.Marshal(h)
	if err == nil {
		err = json.Unmarshal(out, &back)
	}
	if err != nil || string(back.Key) != "secret" {
		t.Errorf("%s, %v; want the key kept in JSON", out, err)
	}
}

func TestCloseLeavesThePlugin(t *testing.T) {
	r := launched(t, "serve")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Attach(context.Background(), r.Handle())
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Stop(soon(t)); err != nil {
		t.Error(err)
	}
}
