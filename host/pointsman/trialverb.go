// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/trial"
)

func trialVerb() *cobra.Command {
	c := &cobra.Command{
		Use:   "trial",
		Short: "Watch for a time whether this node is served as it should be, and fail where it is not",
		Long: `Trial watches this node once each second, as a Job of a rollout does before the next node is
taken: the host's metrics pointsman_healthy, pointsman_ready and pointsman_unserved, and a new
connection to each frontend. It exits 0 when the node was well for all of that time, and 1 as soon as
it was not, with the reason. It changes nothing, and needs no privilege. docs/rollout.md has the rest.`,
		Args: noWords(),
	}
	flags := c.Flags()
	var l trial.Limits
	flags.DurationVar(&l.For, "for", 5*time.Minute, "how long the node has to be well")
	flags.DurationVar(&l.Begin, "begin", 2*time.Minute, "how long it may take until it is well for the first time")
	flags.DurationVar(&l.Grace, "grace", 10*time.Second, "how long it may be other than well, at a stretch")
	flags.IntVar(&l.Failures, "failures", 0, "how many of the connections may fail")
	metrics := flags.String("metrics", "127.0.0.1:10249", "where the host's metrics are: an address, and a port where it is another one")
	connects := flags.StringArray("connect", nil, "a frontend to connect to, as ADDRESS:PORT; may be given several times (default the API server's, in a pod)")
	c.RunE = func(c *cobra.Command, _ []string) error {
		sampler, err := sampler(*metrics, *connects)
		if err != nil {
			return usageError{fmt.Errorf("%w; try: %s --help", err, c.CommandPath())}
		}
		ctx, stop := untilInterrupt(c.Context())
		defer stop()
		fmt.Fprintf(c.OutOrStdout(), "watching %s and new connections to %q for %v\n", sampler.URL, sampler.Connects, l.For)
		said, err := try(ctx, l, sampler)
		if err != nil {
			return fmt.Errorf("this node is not well: %w", err)
		}
		fmt.Fprintf(c.OutOrStdout(), "this node was well for %v: %s\n", l.For, said)
		return nil
	}
	return c
}

// try samples until the trial is over, and returns what was counted.
func try(ctx context.Context, l trial.Limits, from trial.Sampler) (string, error) {
	t := trial.New(l, time.Now())
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if over, err := t.Add(from.Sample(ctx)); over {
			return t.String(), err
		}
		select {
		case <-ctx.Done():
			return "", errors.New("it was interrupted before its time was over")
		case <-tick.C:
		}
	}
}

// sampler reads the flags. In a pod the environment has the API server's frontend.
func sampler(metrics string, connects []string) (trial.Sampler, error) {
	if _, err := netip.ParseAddr(strings.Trim(metrics, "[]")); err == nil {
		metrics = net.JoinHostPort(strings.Trim(metrics, "[]"), "10249")
	}
	if _, _, err := net.SplitHostPort(metrics); err != nil {
		return trial.Sampler{}, fmt.Errorf("--metrics %s: want an address, or ADDRESS:PORT", metrics)
	}
	if host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"); len(connects) == 0 && host != "" && port != "" {
		connects = []string{net.JoinHostPort(host, port)}
	}
	for _, at := range connects {
		if _, err := netip.ParseAddrPort(at); err != nil {
			return trial.Sampler{}, fmt.Errorf("--connect %s: want ADDRESS:PORT", at)
		}
	}
	return trial.Sampler{URL: "http://" + metrics + "/metrics", Connects: connects}, nil
}
