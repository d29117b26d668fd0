// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/pointsman/pointsman/sdk/wire"
)

// cause returns why a launch failed, as far as can be told; err is go-plugin's word.
func (c Command) cause(ctx context.Context, err error, child *child) error {
	late := child.late.Load()
	switch {
	case child.pid == 0:
		return unstarted(c.Path, err)
	case ctx.Err() != nil:
		return child.explain(context.Cause(ctx))
	case child.silent() && late != nil:
		return child.explain(fmt.Errorf("no handshake within %s%s: does it call wire.Serve?", c.timeout(), late.excused()))
	case child.silent():
		return child.explain(fmt.Errorf("it %s before the handshake; does it call wire.Serve?", child.exit.how()))
	}
	answer, ok := parseHandshake(child.line)
	switch {
	case !ok:
		return child.explain(fmt.Errorf("it printed %q to stdout before the handshake: until wire.Serve runs, a plugin may only print to stderr", wire.Printable(child.line)))
	case !answer.speaksOurs():
		return child.explain(&wire.SkewError{Plugin: "plugin " + filepath.Base(c.Path), Majors: []uint32{answer.major}})
	case answer.certified() != nil:
		return child.explain(answer.certified())
	}
	return child.explain(err)
}

// silent reports whether the child ended without a line on stdout.
func (c *child) silent() bool {
	select {
	case <-c.first:
		return c.line == ""
	default:
		return true
	}
}

// explain adds the child's last words to err.
func (c *child) explain(err error) error {
	words := c.tail.text()
	if len(words) == 0 {
		return err
	}
	for i := range words {
		words[i] = wire.Printable(words[i])
	}
	return &launchError{err: err, words: words}
}

// A launchError has the plugin's last words below what went wrong.
type launchError struct {
	err   error
	words []string
}

func (e *launchError) Error() string {
	s := e.err.Error() + "; it said:"
	for _, w := range e.words {
		s += "\n  " + w
	}
	return s
}

func (e *launchError) Unwrap() error { return e.err }
