// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
	"github.com/pointsman/pointsman/test/eventually"
)

// local returns a Remote of dp in this process.
func local(t testing.TB, dp sdk.Dataplane) *Remote {
	t.Helper()
	r, err := Local(soon(t), subjectDescription(), dp)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.Shutdown(context.Background()), r.Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

func TestSessionsFirstUpdateIsFull(t *testing.T) {
	s := &subject{}
	r := configured(t, local(t, s), order{})
	steps := []struct {
		update sdk.Update
		want   error
	}{
		{sdk.Update{From: 0, To: 1}, sdk.ErrResync},
		{sdk.Update{To: 4, Full: true}, nil},
		{sdk.Update{From: 4, To: 5}, nil},
		{sdk.Update{From: 4, To: 6}, sdk.ErrResync},
		{sdk.Update{From: 5, To: 6}, nil},
		{sdk.Update{To: 2, Full: true}, nil},
		{sdk.Update{From: 6, To: 7}, sdk.ErrResync},
	}
	for _, step := range steps {
		if _, err := r.Sync(soon(t), step.update); !errors.Is(err, step.want) {
			t.Errorf("%+v: %v; want %v", step.update, err, step.want)
		}
	}
	configured(t, r, order{})
	if _, err := r.Sync(soon(t), sdk.Update{From: 2, To: 3}); !errors.Is(err, sdk.ErrResync) {
		t.Errorf("new session: %v; want ErrResync", err)
	}
	if len(s.Updates) != 4 {
		t.Errorf("the dataplane got %d updates; want 4", len(s.Updates))
	}
}

func TestCallsNeedASession(t *testing.T) {
	r := local(t, &subject{})
	if _, err := r.Sync(soon(t), full(1)); err == nil || !strings.Contains(err.Error(), "Configure comes first") {
		t.Errorf("Sync: %v", err)
	}
	removed, err := r.Cleanup(soon(t), sdk.Leftovers{KubeProxy: true})
	if err != nil || len(removed) != 2 {
		t.Errorf("Cleanup, which needs no session: %v, %v", removed, err)
	}
	if _, err := r.Configure(soon(t), sdk.Setup{Options: order{Refuse: true}.Options()}); err == nil {
		t.Error("Configure returned no error")
	}
	if _, err := r.Sync(soon(t), full(1)); err == nil || !strings.Contains(err.Error(), "Configure failed") {
		t.Errorf("Sync after a failed Configure: %v", err)
	}
}

// TestAnOlderSessionIsFenced checks that a new session fences the older one in every role.
func TestAnOlderSessionIsFenced(t *testing.T) {
	for _, role := range []sdk.Role{0, sdk.Standby, sdk.Active, sdk.Draining} {
		var s session
		s.begin("older", nil)
		s.update(func() { s.configured, s.role = true, role })
		if err := s.admit("older"); err != nil {
			t.Errorf("%v: own session: %v", role, err)
		}
		s.begin("newer", nil)
		s.update(func() { s.configured = true })
		if err := s.admit("older"); !errors.Is(err, ErrFenced) {
			t.Errorf("%v: older session: %v; want ErrFenced", role, err)
		}
	}
}

func TestErrorsSurvive(t *testing.T) {
	r := local(t, &subject{})
	_, err := r.Configure(soon(t), sdk.Setup{Options: order{Refuse: true}.Options()})
	var refusal *sdk.Refusal
	want := sdk.Refusal{Field: "options.refuse", Why: "it was asked for", Try: "asking for less"}
	if !errors.As(err, &refusal) || *refusal != want || err.Error() != want.Error() {
		t.Errorf("Configure: %v; want %v", err, &want)
	}
	configured(t, r, order{Resync: true})
	if _, err := r.Sync(soon(t), full(1)); !errors.Is(err, sdk.ErrResync) || !strings.HasPrefix(err.Error(), "lost my place") {
		t.Errorf("Sync: %v; want ErrResync with the text of the dataplane", err)
	}
	if err := r.Inspect(soon(t), nil); !errors.Is(err, ErrUnsupported) {
		t.Errorf("Inspect: %v; want ErrUnsupported", err)
	}
	if err := r.ExportAffinity(soon(t), nil); !errors.Is(err, ErrUnsupported) {
		t.Errorf("ExportAffinity: %v; want ErrUnsupported", err)
	}
	if err := r.ImportAffinity(soon(t), nil); !errors.Is(err, ErrUnsupported) {
		t.Errorf("ImportAffinity: %v; want ErrUnsupported", err)
	}
}

// TestResultsSurvive sends a result with 10,000 failures, one of them without an error.
func TestResultsSurvive(t *testing.T) {
	r := configured(t, local(t, &subject{}), order{})
	u := bulk(10000, 1)
	for i := range u.Set {
		u.Set[i].Name.Port = fmt.Sprintf("fail: no room for %d", i)
	}
	u.Set[7].Name.Port = "fail: "
	u.Set[8].Name.Port = "fail: no room \xff"
	result, err := r.Sync(soon(t), u)
	if err != nil {
		t.Fatal(err)
	}
	why := make(map[sdk.Name]string)
	for _, f := range result.Failed {
		why[f.Name] = f.Err.Error()
	}
	if len(why) != 10000 || why[u.Set[9999].Name] != "no room for 9999" || !strings.Contains(why[u.Set[7].Name], "does not say why") || !strings.Contains(why[u.Set[8].Name], "not UTF-8") {
		t.Errorf("%d Services failed: %q, %q, %q", len(why), why[u.Set[9999].Name], why[u.Set[7].Name], why[u.Set[8].Name])
	}
}

// TestASchemaIsJSON checks that options of a Description that are not JSON are dropped, because the host embeds them in its
// JSON.
func TestASchemaIsJSON(t *testing.T) {
	r := local(t, &subject{})
	d, err := r.Configure(soon(t), sdk.Setup{Options: order{Schema: `{"type": "object"}`}.Options()})
	if err != nil || string(d.Options) != `{"type": "object"}` {
		t.Errorf("Configure: %s, %v", d.Options, err)
	}
	for said, want := range map[string]string{"{": "", "": "", "\x00": "", "{} {}": "", " {} ": " {} "} {
		if got := decodeDescription(&pb.Description{Options: []byte(said)}).Options; string(got) != want {
			t.Errorf("the options %q become %q, want %q", said, got, want)
		}
	}
}

// TestBusyTravels checks that a wrapped *sdk.Busy keeps its fields.
func TestBusyTravels(t *testing.T) {
	want := sdk.Busy{Mode: "nftables", PID: 42, Program: "kube proxy", Host: 7}
	for _, busy := range []sdk.Busy{want, {Mode: "nftables"}} {
		sent := busy
		if sent.Program != "" {
			sent.Program = "kube\nproxy"
		}
		err := decodeStatus(encodeStatus(fmt.Errorf("set role: %w", &sent)))
		var got *sdk.Busy
		if !errors.As(err, &got) || *got != busy || !strings.HasPrefix(err.Error(), "set role: ") {
			t.Errorf("%+v became %+v, %v", busy, got, err)
		}
	}
}

// TestCallsWaitForEachOther checks that calls do not overlap, and that Vitals shows the current call.
func TestCallsWaitForEachOther(t *testing.T) {
	s := &subject{}
	r := configured(t, local(t, s), order{Wait: true})
	ctx, cancel := context.WithCancel(soon(t))
	syncing := make(chan error, 1)
	go func() {
		_, err := r.Sync(ctx, full(1))
		syncing <- err
	}()
	eventually.True(t, "Sync runs", func() bool {
		v, err := r.Vitals(soon(t))
		return err == nil && v.Call == "Sync" && v.CallFor > 0
	})
	if err := r.SetRole(brief(t), sdk.Active); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("SetRole did not wait for Sync: %v", err)
	}
	role := make(chan error, 1)
	go func() { role <- r.SetRole(soon(t), sdk.Draining) }()
	cancel()
	if err := <-syncing; !errors.Is(err, context.Canceled) {
		t.Errorf("Sync: %v; want context.Canceled", err)
	}
	if err := <-role; err != nil {
		t.Errorf("SetRole after Sync: %v", err)
	}
	if v, err := r.Vitals(soon(t)); err != nil || v.Call != "" || v.Role != sdk.Draining || v.Revision != 0 {
		t.Errorf("vitals are %+v, %v", v, err)
	}
}

// TestCallThatWasGivenUpNeverBegins checks that a call whose context has ended does not begin even if no other call runs:
// a later call of the same caller may have run first, and an older state must not replace a newer one.
func TestCallThatWasGivenUpNeverBegins(t *testing.T) {
	s := newSemaphore()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // select picks one of two ready cases at random
		if _, release, err := s.acquire(ctx, "Sync"); err == nil {
			release()
			t.Fatal("a call with an ended context began")
		}
	}
	_, release, err := s.acquire(t.Context(), "Sync")
	if err != nil {
		t.Fatal("a call that did not begin holds the semaphore: ", err)
	}
	release()
}
