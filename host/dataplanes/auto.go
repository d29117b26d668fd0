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

// A chooser makes the choice once, and keeps it: also after a reboot the node has the mode that
// it began with.
type chooser struct {
	plugins installed

	deciding sync.Mutex // held by the one begin
	made     atomic.Pointer[plane.Choice]
}

// mode returns the mode that the file's stands for.
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

// Auto says what "auto" stands for, and why; empty: the file names a mode.
func (c *chooser) Auto() string {
	made := c.made.Load()
	if made == nil || c.plugins.Now().Mode != config.Auto {
		return ""
	}
	return fmt.Sprintf("auto is %s since %s: %s", made.Mode, made.At.UTC().Format(time.DateOnly), made.Why)
}

// begin returns the choice that a host before made, or a new one, which is written down.
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
		return made // the node does not begin with that: neither is installed
	}
	if err := made.Keep(c.plugins.Begun.DataDir); err != nil {
		c.report(report.StateNotWritten, err, "the next host decides anew")
	}
	return made
}

func (c *chooser) report(reason string, err error, then string) {
	c.plugins.Reports.Report(report.Event{Warning: true, Reason: reason, Message: fmt.Sprintf("%v; %s", err, then)})
}

// choose decides by what the plugins say of this node. What nftables notes counts where iptables
// can serve: in that mode our rules may stand before those of other programs that drop.
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

// runs reports whether a mode's plugin is there, and says that this node can run it.
func (in installed) runs(ctx context.Context, mode string) bool {
	said, err := in.check(ctx, in.Now(), mode)
	return in.available(mode) && err == nil && said.Runs
}
