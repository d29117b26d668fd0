// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// What the kernel has is read once for a process, and not at all where it has nothing of
// ours; but a Full reads it again if another process wrote meanwhile.
func TestKernelReadsOnce(t *testing.T) {
	onKernel(t, func(k kernel) {
		k.run("iptables-"+string(k.backend), "-t", "nat", "-N", "THEIRS")
		s := beforeUs(scenario(k.T, "node-port").Node)
		s.Services = s.Services[:1]
		started := k.spyOnPrograms()
		saves := startsOf(started, "-save")

		first := k.start()
		k.role(first, sdk.Active)
		restores := startsOf(started, "-restore --noflush -w 1")
		restores()
		k.sync(first, s.Update(1))
		if n := restores(); n != 4 {
			k.Errorf("both families took %d restores, not one each, and one for what all dataplanes share", n)
		}
		if n := saves(); n > 0 {
			k.Errorf("it printed tables %d times in which nothing was ours", n)
		}
		first.die()

		next := k.start()
		k.role(next, sdk.Active)
		if saves() == 0 {
			k.Error("a process that comes after another has not read what that one wrote")
		}
		k.want(s, sdk.Active) // it had no update, so it removes nothing
		saves()
		k.sync(next, s.Update(1))
		if n := saves(); n > 0 {
			k.Errorf("what had just been read was read %d times more", n)
		}
		k.want(s, sdk.Active)
		next.die()

		last := k.start()
		k.role(last, sdk.Active)
		saves()
		k.run("iptables-"+string(k.backend), "-t", "nat", "-F", services)
		k.sync(last, s.Update(1))
		if n := saves(); n == 0 {
			k.Error("another process wrote, and it was not read again")
		}
		k.want(s, sdk.Active)
	})
}

// startsOf tells how many programs were started, since it was last asked, with words in
// their lines.
func startsOf(started func() []string, words string) func() int {
	before := 0
	return func() int {
		all := 0
		for _, line := range started() {
			if strings.Contains(line, words) && !strings.HasSuffix(line, "--test") {
				all++
			}
		}
		since := all - before
		before = all
		return since
	}
}
