// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// A planner is a subject that says of each Service of an update that it would write it.
type planner struct {
	subject
	steps int // for each; more than one: the others are indented
	err   error
}

func (p *planner) Plan(_ context.Context, setup sdk.Setup, u sdk.Update) (r sdk.Result, err error) {
	for _, s := range u.Set {
		r.Steps = append(r.Steps, "write "+s.Name.String()+" by "+string(setup.Options))
		for i := range p.steps - 1 {
			r.Steps = append(r.Steps, fmt.Sprintf("  + rule %d", i))
		}
	}
	for _, n := range u.Delete {
		r.Failed = append(r.Failed, sdk.Failure{Name: n, Err: errors.New("busy")})
	}
	return r, p.err
}

// plan runs the verb on an update.
func plan(t *testing.T, dp sdk.Dataplane, u sdk.Update, args ...string) (exit int, stdout, stderr string) {
	t.Helper()
	var in, out, err bytes.Buffer
	if _, err := WriteUpdate(&in, u); err != nil {
		t.Fatal(err)
	}
	exit = runCLI(subjectDescription(), dp, append([]string{"plan"}, args...), &in, &out, &err)
	return exit, out.String(), err.String()
}

// TestPlan: an update that was written for the verb plan arrives there whole, in however many
// chunks, and the answer is bounded.
func TestPlan(t *testing.T) {
	t.Parallel()
	u := full(1, bulk(3000, 20).Set...)
	u.Delete = []sdk.Name{{Namespace: "ns", Service: "gone", Protocol: sdk.TCP, Family: sdk.IPv4}}
	exit, out, _ := plan(t, &planner{steps: 4}, u, "-o", "json", "--options", `{"a":1}`)
	var got planned
	if err := json.Unmarshal([]byte(out), &got); err != nil || exit != exitOK {
		t.Fatalf("exit %d, %v", exit, err)
	}
	if len(got.Lines) != mostPlanned || got.More != 500 || got.Lines[0] != "write "+u.Set[0].Name.String()+` by {"a":1}` {
		t.Errorf("%d lines, the first is %q, and %d more", len(got.Lines), got.Lines[0], got.More)
	}
	if !slices.Equal(got.Failed, []plannedFailed{{u.Delete[0].String(), "busy"}}) {
		t.Errorf("failed: %+v", got.Failed)
	}
	if _, out, _ := plan(t, &planner{steps: 1}, full(1, bulk(2, 1).Set...)); strings.Count(out, "write ") != 2 {
		t.Errorf("for people it prints %q", out)
	}
}

// TestPlanCannot: a plugin that cannot plan, one that fails, and an update that is cut off.
func TestPlanCannot(t *testing.T) {
	t.Parallel()
	u := full(1, bulk(1, 1).Set...)
	if exit, out, _ := plan(t, &subject{}, u, "-o", "json"); exit != exitFailed || !strings.Contains(out, "it cannot say what it would write") {
		t.Errorf("without a Planner it exits %d and says %s", exit, out)
	}
	if exit, out, _ := plan(t, &planner{err: errors.New("no tables")}, u, "-o", "json"); exit != exitFailed || !strings.Contains(out, `"error": "no tables"`) {
		t.Errorf("when that fails it exits %d and says %s", exit, out)
	}
	var whole bytes.Buffer
	if _, err := WriteUpdate(&whole, u); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, whole.Len() - 1} {
		if _, err := readUpdate(bytes.NewReader(whole.Bytes()[:n])); err == nil {
			t.Errorf("%d of %d bytes were taken for an update", n, whole.Len())
		}
	}
	if _, err := readUpdate(strings.NewReader("\xff\xff\xff\xff\x7f")); err == nil {
		t.Error("a chunk of 32 GiB was begun")
	}
}
