// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/config"
)

func runVerb() *cobra.Command {
	c := &cobra.Command{
		Use:   "run",
		Short: "Be the host: watch Services and keep the dataplane told",
		Long: `Run watches Services and keeps the dataplane that mode names told what this node
serves of them, until a signal ends it.

SIGINT stops the plugin too. SIGTERM leaves it serving; the next host goes on with it.`,
		Args: noWords(),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := settings(c)
			if err != nil {
				return err
			}
			tuneGC()
			h, err := newHost(s, c.Flags(), c.ErrOrStderr())
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(c.Context(), func(sig os.Signal) {
				h.log.Info("host ends", "signal", sig)
				if sig == syscall.SIGTERM {
					h.dataplanes.Leave()
				}
			})
			defer stop()
			return h.run(ctx)
		},
	}
	config.AddFlags(c.Flags())
	return c
}

// untilSignal returns a context that ends with the first SIGINT or SIGTERM, after came
// was called. The second one ends the process as it would any other.
func untilSignal(ctx context.Context, came func(os.Signal)) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() { // ends with ctx
		defer signal.Stop(signals)
		select {
		case sig := <-signals:
			came(sig)
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// untilInterrupt is for verbs that only read or wait.
func untilInterrupt(ctx context.Context) (context.Context, func()) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}
