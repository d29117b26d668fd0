// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// WriteUpdate writes u as the verb plan of a plugin's binary reads it from its standard input. It
// returns the Services that cannot be put on the wire.
func WriteUpdate(w io.Writer, u sdk.Update) ([]sdk.Failure, error) {
	return sendUpdate("", u, func(c *pb.UpdateChunk) error {
		_, err := protodelim.MarshalTo(w, c)
		return err
	})
}

// readUpdate reads what WriteUpdate wrote.
func readUpdate(r io.Reader) (*incoming, error) {
	in, from := &incoming{}, bufio.NewReader(r)
	for last := false; !last; {
		chunk := &pb.UpdateChunk{}
		if err := (protodelim.UnmarshalOptions{MaxSize: 2 * chunkSize}).UnmarshalFrom(from, chunk); err != nil {
			return nil, fmt.Errorf("read the update from standard input: %w", err)
		}
		var err error
		if last, err = in.add(chunk); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// A planned is the answer of plan as programs read it.
type planned struct {
	Lines  []string        `json:"lines"`  // steps; those that begin with a space belong to the step before
	More   int             `json:"more"`   // so many steps are left out
	Failed []plannedFailed `json:"failed"` // Services that could not be served
	Error  string          `json:"error,omitempty"`
}

type plannedFailed struct {
	Service string `json:"service"`
	Why     string `json:"why"`
}

// mostPlanned is how many lines plan prints.
const mostPlanned = 10_000

// plan says what an update from standard input would have the dataplane write.
func (c cli) plan(ctx context.Context, args []string) error {
	var options string
	asJSON, err := c.outputFlags("plan", args, func(f *flag.FlagSet) { f.StringVar(&options, "options", "{}", "JSON") })
	if err != nil {
		return err
	}
	answer, err := c.planned(ctx, options)
	if asJSON {
		if err != nil {
			answer.Error = err.Error()
		}
		return errors.Join(c.printJSON(answer), err)
	}
	for _, line := range answer.Lines {
		fmt.Fprintln(c.stdout, line)
	}
	if answer.More > 0 {
		fmt.Fprintf(c.stdout, "and %d more steps\n", answer.More)
	}
	for _, f := range answer.Failed {
		fmt.Fprintf(c.stdout, "cannot serve %s: %s\n", f.Service, f.Why)
	}
	return err
}

func (c cli) planned(ctx context.Context, options string) (planned, error) {
	answer := planned{Lines: []string{}, Failed: []plannedFailed{}}
	p, can := c.dataplane.(sdk.Planner)
	if !can {
		return answer, errors.New("it cannot say what it would write")
	}
	in, err := readUpdate(c.stdin)
	if err != nil {
		return answer, err
	}
	result, err := p.Plan(ctx, sdk.Setup{
		Options:  []byte(options),
		StateDir: os.DevNull, // nothing is made below it
		Log:      slog.New(slog.NewTextHandler(c.stderr, nil)),
	}, in.update)
	answer.take(result.Steps)
	for _, f := range append(in.failed, result.Failed...) {
		if len(answer.Failed) == mostPlanned {
			break
		}
		answer.Failed = append(answer.Failed, plannedFailed{f.Name.String(), text(f.Err.Error())})
	}
	return answer, err
}

// take adds steps, as many as there is room for.
func (p *planned) take(steps []string) {
	for _, s := range steps {
		detail := strings.HasPrefix(s, " ")
		switch {
		case len(p.Lines) < mostPlanned && p.More == 0:
			p.Lines = append(p.Lines, text(s))
		case !detail:
			p.More++
		}
	}
}
