// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/host/binaries"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/plane"
	"github.com/pointsman/pointsman/host/report"
)

// mode returns file, or the chosen mode if file is "auto".
func (set *Set) mode(file string) string {
	if file != config.Auto {
		return file
	}
	return set.choice().Mode
}

// Auto describes the choice for "auto" and its reason; empty if the config file names a mode.
func (set *Set) Auto() string {
	if set.Now().Mode != config.Auto {
		return ""
	}
	c := set.choice()
	return fmt.Sprintf("auto is %s since %s: %s", c.Mode, c.At.UTC().Format(time.DateOnly), c.Why)
}

// makeChoice returns the stored choice of a previous host, so that the node keeps its mode across
// reboots, or makes and stores a new one.
func (in installed) makeChoice() plane.Choice {
	warn := func(reason string, err error, then string) {
		in.Reports.Report(report.Event{Warning: true, Reason: reason, Message: fmt.Sprintf("%v; %s", err, then)})
	}
	stored, err := plane.ReadChoice(in.Begun.DataDir)
	if err != nil {
		warn(report.StateNotUsed, err, "the host chooses again")
	}
	if stored.Mode != "" {
		return stored
	}
	c := in.choose(context.Background())
	if !in.available(c.Mode) {
		return c // Begin will fail: neither mode is installed
	}
	if err := c.Write(in.Begun.DataDir); err != nil {
		warn(report.StateNotWritten, err, "the next host chooses again")
	}
	return c
}

// choose chooses a mode from the plugins' reports about this node. A note of nftables counts against nftables if
// iptables can serve, because rules of mode iptables can come before the rules of other programs that drop packets.
func (in installed) choose(ctx context.Context) plane.Choice {
	c := plane.Choice{Mode: "iptables", At: time.Now()}
	if !in.available("nftables") {
		c.Why = binaries.Missing(in.Now(), "nftables")
		return c
	}
	switch said, err := in.check(ctx, in.Now(), "nftables"); {
	case err != nil:
		c.Why = "the nftables plugin does not answer: " + phrase.OneLine(err.Error())
	case !said.Runs:
		c.Why = "nftables cannot run on this node: " + phrase.OneLine(said.Why)
	case len(said.Notes) > 0 && in.runs(ctx, "iptables"):
		c.Why = said.Notes[0]
	default:
		c.Mode, c.Why = "nftables", "this node supports it"
	}
	return c
}

// runs reports whether a mode's plugin is installed and can run on this node.
func (in installed) runs(ctx context.Context, mode string) bool {
	said, err := in.check(ctx, in.Now(), mode)
	return err == nil && said.Runs
}
