// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
)

func hasSCTP() bool { return false }

func dialSCTP(context.Context, *Host, netip.Addr, netip.AddrPort) (net.Conn, error) {
	return nil, errors.ErrUnsupported
}

func answerSCTP(*Host, netip.AddrPort) (io.Closer, error) { return nil, errors.ErrUnsupported }
