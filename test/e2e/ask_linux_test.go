// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// silence is how long an answer may take. One that is lost is asked for again.
const silence = time.Second

// What becomes of a call, besides "ENDPOINT saw CALLER".
const (
	refused = "refused"
	dropped = "dropped"
)

// call calls from p, and says what became of it.
func call(ctx context.Context, p *place, network string, to netip.AddrPort) string {
	from := p.addrs[0]
	if to.Addr().Is6() {
		from = p.addrs[1]
	}
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	conn, err := p.host.Dial(ctx, network, from, to)
	if err != nil {
		return failed(err)
	}
	defer conn.Close()
	line, err := ask(conn)
	if err != nil {
		return failed(err)
	}
	return line
}

// ask asks the endpoint at the other end who it is, and whom it sees.
func ask(conn net.Conn) (string, error) {
	if err := conn.SetDeadline(time.Now().Add(silence)); err != nil {
		return "", err
	}
	if conn.LocalAddr().Network() == "udp" { // on a connection it says so unasked
		if _, err := conn.Write([]byte("who\n")); err != nil {
			return "", err
		}
	}
	buf := make([]byte, 256)
	n, err := conn.Read(buf)
	if err != nil {
		return "", err
	}
	me, caller, _ := strings.Cut(strings.TrimSpace(string(buf[:n])), " ")
	seen, err := netip.ParseAddrPort(caller)
	if err != nil {
		return "", fmt.Errorf("the endpoint says %q", buf[:n])
	}
	return me + " saw " + seen.Addr().Unmap().String(), nil
}

func failed(err error) string {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return dropped
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		return refused
	}
	return err.Error()
}

// saw is the answer of endpoint to a caller that it sees as caller.
func saw(endpoint *place, port uint16, caller netip.Addr) string {
	return fmt.Sprintf("%s saw %s", netip.AddrPortFrom(endpoint.in(caller), port), caller)
}

// in is p's address in the family of a.
func (p *place) in(a netip.Addr) netip.Addr {
	if a.Is6() {
		return p.addrs[1]
	}
	return p.addrs[0]
}

// expect calls until what becomes of it is want.
func (w *world) expect(from *place, network string, to netip.AddrPort, want string) {
	w.Helper()
	w.until(fmt.Sprintf("%s calls %s %s", from.addrs[0], to, network), func() error {
		if got := call(w.Context(), from, network, to); !w.same(got, want) {
			return fmt.Errorf("%q, and not %q", got, want)
		}
		return nil
	})
}

// same reports whether a call went as wanted; who was seen calling does not count
// where a relay calls in their place.
func (w *world) same(got, want string) bool {
	if w.hides {
		got, _, _ = strings.Cut(got, " saw ")
		want, _, _ = strings.Cut(want, " saw ")
	}
	return got == want
}

// spread calls until, in one go, all of want have answered and nobody else.
func (w *world) spread(from *place, network string, to netip.AddrPort, want ...string) {
	w.Helper()
	w.until(fmt.Sprintf("%s calls %s %s", from.addrs[0], to, network), func() error {
		heard := make(map[string]bool)
		for range 16 * len(want) {
			got := call(w.Context(), from, network, to)
			i := slices.IndexFunc(want, func(s string) bool { return w.same(got, s) })
			if i < 0 {
				return fmt.Errorf("%q, and not one of %q", got, want)
			}
			heard[want[i]] = true
		}
		if len(heard) < len(want) {
			return fmt.Errorf("only %v have answered", heard)
		}
		return nil
	})
}
