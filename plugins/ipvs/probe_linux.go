// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"

	"github.com/vishvananda/netlink"

	"github.com/pointsman/pointsman/sdk"
)

// oldestIPSet is the first version of ipset whose sets can hold a mark beside an
// entry.
var oldestIPSet = [2]int{6, 22}

// probe finds out whether this node can do it. What is missing is a *sdk.Refusal that says
// what would help.
func probe(ctx context.Context, o options) error {
	if err := hasIPVS(ctx); err != nil {
		return err
	}
	if err := hasIPSet(ctx); err != nil {
		return err
	}
	if err := hasModules(ctx); err != nil {
		return err
	}
	return hasScheduler(ctx, o.Scheduler)
}

// hasIPVS reports, by a refusal, that the kernel has no IPVS. It is asked before the
// library is, which would look once and never again.
func hasIPVS(ctx context.Context) error {
	if ipvsThere() {
		return nil
	}
	_ = exec.CommandContext(ctx, "modprobe", "-q", "ip_vs").Run() // what comes of it is seen below
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if ipvsThere() {
		return nil
	}
	return &sdk.Refusal{Why: "this kernel has no IPVS, or has not loaded it", Try: "modprobe ip_vs"}
}

func ipvsThere() bool {
	_, err := netlink.GenlFamilyGet("IPVS")
	return err == nil
}

var versionWord = regexp.MustCompile(`v(\d+)\.(\d+)`)

// hasIPSet reports, by a refusal, that the program is missing or too old.
func hasIPSet(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "ipset", "--version").Output()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	want := fmt.Sprintf("%d.%d", oldestIPSet[0], oldestIPSet[1])
	found := versionWord.FindSubmatch(out)
	if err != nil && found == nil {
		return &sdk.Refusal{Why: "there is no ipset in PATH", Try: "apt-get install ipset (" + want + " or later)"}
	}
	if found == nil || older(found, oldestIPSet) {
		return &sdk.Refusal{Why: fmt.Sprintf("ipset is %q, and version %s or later is needed", bytes.TrimSpace(out), want), Try: "apt-get install ipset (" + want + " or later)"}
	}
	return nil
}

func older(found [][]byte, than [2]int) bool {
	major, _ := strconv.Atoi(string(found[1]))
	minor, _ := strconv.Atoi(string(found[2]))
	return major < than[0] || major == than[0] && minor < than[1]
}

// hasModules reports, by a refusal, that the kernel could not load what a device or a
// rule of ours will ask for.
func hasModules(ctx context.Context) error {
	for _, module := range []string{"dummy", "xt_set"} {
		if absent(ctx, module) {
			return &sdk.Refusal{Why: "there is no module " + module + " for this kernel", Try: "install it, and then: modprobe " + module}
		}
	}
	return ctx.Err()
}

// hasScheduler reports, by a refusal, that the kernel could not load a scheduler.
func hasScheduler(ctx context.Context, name string) error {
	if module := "ip_vs_" + name; absent(ctx, module) {
		return &sdk.Refusal{Field: "options.scheduler", Why: "there is no module " + module + " for this kernel", Try: "install it, and then: modprobe " + module + "; or choose another scheduler"}
	}
	return ctx.Err()
}

// absent reports whether a module is neither loaded nor known to modprobe. Who does not
// even know that of IPVS, which is there, as in a container without the node's modules,
// knows nothing: then the kernel itself will tell.
func absent(ctx context.Context, module string) bool {
	if _, err := os.Stat("/sys/module/" + module); err == nil {
		return false
	}
	denies := func(module string) bool {
		return errors.As(exec.CommandContext(ctx, "modprobe", "-n", "-q", module).Run(), new(*exec.ExitError))
	}
	return denies(module) && !denies("ip_vs") && ctx.Err() == nil
}
