// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/helper"
	"github.com/pointsman/pointsman/sdk/wire"
)

// helpers returns the declared helpers that run. What cannot be read declares nothing.
func (t *trial) helpers() []helper.Record {
	all, _ := helper.All(helper.Dir(t.stateDir))
	return slices.DeleteFunc(all, func(r helper.Record) bool { return !r.Runs() })
}

// names returns each helper as an operator finds it, by its pid.
func names(list []helper.Record) (out []string) {
	for _, r := range list {
		out = append(out, r.String())
	}
	return out
}

// undeclared names those of these processes that are no helper's.
func (t *trial) undeclared(pids []int) (left []string) {
	declared := t.helpers()
	for _, pid := range pids {
		if !slices.ContainsFunc(declared, func(r helper.Record) bool { return r.Has(pid) }) {
			left = append(left, processName(pid))
		}
	}
	return left
}

// helpersAreAdopted: where the process is killed, its helpers serve on, and its successor goes on
// with them. Those of one that dies with its process are ended by the host.
func helpersAreAdopted(t *trial) {
	t.needsEnd()
	r, ok := t.dp.(*wire.Remote)
	if !ok || r.Hello().PID == 0 || r.Target().Network == "local" {
		t.fail(excused{"the dataplane is in this process"})
	}
	s := t.scenario("cluster-ip")
	t.serve(s)
	before := t.helpers()
	switch {
	case len(before) == 0:
		t.fail(excused{"it has declared no helper"})
	case limited(t.description, sdk.LimitDiesWithProcess):
		t.fail(by(sdk.LimitDiesWithProcess))
	}
	t.during("kill the plugin's process")
	plugin, err := os.FindProcess(r.Hello().PID)
	t.need(err)
	t.need(plugin.Kill())
	t.need(poll(t.ctx, 10*time.Second, func() error {
		select {
		case <-r.Exited():
			return nil
		default:
			return mismatch{"the process to end", "it lives"}
		}
	}))
	t.stop()
	t.during("after the plugin's process was killed")
	if now := t.helpers(); !slices.Equal(names(now), names(before)) {
		t.fail(mismatch{"its helpers to run on: " + strings.Join(names(before), "; "), fmt.Sprintf("%q", names(now))})
	}
	t.need(settledOrNoTestbed(t.packets(s)))
	t.during("after it was started again")
	t.need(t.start())
	t.serve(s)
	if err := t.differs(s); err != nil && !errors.As(err, new(notRun)) {
		t.fail(err)
	}
	if now := t.helpers(); !slices.Equal(names(now), names(before)) {
		t.fail(mismatch{"its helpers to be adopted: " + strings.Join(names(before), "; "), fmt.Sprintf("%q", names(now))})
	}
}
