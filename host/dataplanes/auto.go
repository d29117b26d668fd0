// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/plane"
	"github.com/pointsman/pointsman/host/report"
)

// A chooser chooses the mode for "auto" once and stores it, so that the node keeps its mode
// across reboots.
type chooser struct {
	plugins installed

	deciding sync.Mutex // serializes begin
	made     atomic.Pointer[plane.Choice]
}

// mode returns file, or the chosen mode if file is "auto".
func (c *chooser) mode(file string) string {
	if file != config.Auto {
		return file
	}
	c.deciding.Lock()
	defer c.deciding.Unlock()
	if c.made.Load() == nil {
		made := c.begin()
		c.made.Store(&made)
	}
	return c.made.Load().Mode
}

// Auto describes the choice for "auto" and its reason; empty if the config file names a mode.
func (c *chooser) Auto() string {
	made := c.made.Load()
	if made == nil || c.plugins.Now().Mode != config.Auto {
		return ""
	}
	return fmt.Sprintf("auto is %s since %s: %s", made.Mode, made.At.UTC().Format(time.DateOnly), made.Why)
}

// begin returns the stored choice of a previous host, or makes and stores a new one.
func (c *chooser) begin() plane.Choice {
	kept, err := plane.ReadChoice(c.plugins.Begun.DataDir)
	if err != nil {
		c.report(report.StateNotUsed, err, "it is decided anew")
	}
	if kept.Mode != "" {
		return kept
	}
	made := c.plugins.choose(context.Background())
	if !c.plugins.available(made.Mode) {
		return made // Begin will fail: neither mode is installed
	}
	if err := made.Keep(c.plugins.Begun.DataDir); err != nil {
		c.report(report.StateNotWritten, err, "the next host decides anew")
	}
	return made
}

func (c *chooser) report(reason string, err error, then string) {
	c.plugins.Reports.Report(report.Event{Warning: true, Reason: reason, Message: fmt.Sprintf("%v; %s", err, then)})
}

// choose chooses a mode by what the plugins say about this node. A note of nftables counts if
// iptables can serve: in iptables mode our rules can stand before the rules of other programs
// that drop packets.
func (in installed) choose(ctx context.Context) plane.Choice {
	c := plane.Choice{Mode: "iptables", At: time.Now()}
	if !in.available("nftables") {
		c.Why = missing(in.Now(), "nftables")
		return c
	}
	switch said, err := in.check(ctx, in.Now(), "nftables"); {
	case err != nil:
		c.Why = "nftables cannot be asked whether it can serve here: " + oneLine(err.Error())
	case !said.Runs:
		c.Why = "nftables cannot serve here: " + oneLine(said.Why)
	case len(said.Notes) > 0 && in.runs(ctx, "iptables"):
		c.Why = said.Notes[0]
	default:
		c.Mode, c.Why = "nftables", "this node can serve by it"
	}
	return c
}

// runs reports whether a mode's plugin is installed and can run on this node.
func (in installed) runs(ctx context.Context, mode string) bool {
	said, err := in.check(ctx, in.Now(), mode)
	return in.available(mode) && err == nil && said.Runs
}
