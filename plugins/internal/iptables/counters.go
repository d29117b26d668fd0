// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Counters calls each for every rule of a table, in order, with how many packets it has matched. The rules
// are not kept: there may be very many.
func (t Tool) Counters(ctx context.Context, table string, each func(chain string, rule Rule, packets uint64)) error {
	if t.Kernel != nil {
		return fmt.Errorf("count packets: %w", errors.ErrUnsupported)
	}
	c := counters{each: each, heard: t.Heard}
	stderr, err := t.runInto(ctx, &c, t.program("save"), nil, "-c", "-t", table)
	if err != nil {
		return fmt.Errorf("%s -c -t %s: %w", t.program("save"), table, said(err, stderr))
	}
	return nil
}

// counters takes what iptables-save -c prints.
type counters struct {
	each  func(chain string, rule Rule, packets uint64)
	heard func()
	rest  []byte // the beginning of a line
}

func (c *counters) Write(part []byte) (int, error) {
	if c.heard != nil {
		c.heard()
	}
	size := len(part)
	for {
		line, behind, whole := bytes.Cut(part, []byte("\n"))
		if !whole {
			c.rest = append(c.rest, line...)
			return size, nil
		}
		c.rest = append(c.rest, line...)
		c.line(string(c.rest))
		c.rest, part = c.rest[:0], behind
	}
}

// line is that of a rule: "[12:720] -A CHAIN ...", or another.
func (c *counters) line(line string) {
	counts, rest, _ := strings.Cut(line, "] -A ")
	packets, _, ok := strings.Cut(strings.TrimPrefix(counts, "["), ":")
	if !ok || counts == "" || counts[0] != '[' {
		return
	}
	n, err := strconv.ParseUint(packets, 10, 64)
	chain, rule, _ := strings.Cut(rest, " ")
	if err == nil && chain != "" {
		c.each(chain, asWritten(rule), n)
	}
}
