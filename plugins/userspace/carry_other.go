// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package userspace

import (
	"errors"
	"io"
)

// carry moves bytes until from has said all (no error), from breaks off, or to
// takes no more.
func (p *pump) carry() (readErr, writeErr error) {
	buf := make([]byte, 16<<10)
	for {
		n, err := p.from.Read(buf)
		if n > 0 {
			if _, err := p.to.Write(buf[:n]); err != nil {
				return nil, err
			}
			p.bytes.Add(uint64(n))
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil, nil
		case err != nil:
			return err, nil
		}
	}
}

// pipes are not needed where bytes are copied.
type pipes struct{}

func newPipes() pipes   { return pipes{} }
func (p *pipes) close() {}
