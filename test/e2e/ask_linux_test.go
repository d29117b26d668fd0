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

// silence limits the wait for an answer. It is longer than the second after which TCP sends a SYN again, because the
// kernel ignores an ICMP answer to the first packet while the socket is busy sending.
const silence = 1500 * time.Millisecond

// The results of a call that no endpoint answers. Otherwise, the result is "ENDPOINT saw CALLER".
const (
	refused = "refused"
	dropped = "dropped"
)

// call calls from p, and returns the result.
func (l *land) call(ctx context.Context, p *place, network string, to netip.AddrPort) string {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	conn, err := p.hosts[l.index].Dial(ctx, network, p.addrIn(to.Addr()), to)
	if err != nil {
		return failed(err)
	}
	defer conn.Close()
	line, err := ask(conn, silence)
	if err != nil {
		return failed(err)
	}
	return line
}

// ask asks the endpoint for its address and for the client address that it sees.
func ask(conn net.Conn, wait time.Duration) (string, error) {
	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		return "", err
	}
	if conn.LocalAddr().Network() == "udp" { // over TCP, an endpoint sends its answer unasked
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
		return "", fmt.Errorf("the endpoint answers %q", buf[:n])
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

// answerOf returns the result of a call to an endpoint that sees the address of caller.
func answerOf(endpoint *place, port uint16, caller netip.Addr) string {
	return fmt.Sprintf("%s saw %s", netip.AddrPortFrom(endpoint.addrIn(caller), port), caller)
}

// addrIn returns p's address in the family of a.
func (p *place) addrIn(a netip.Addr) netip.Addr {
	if a.Is6() {
		return p.addrs[1]
	}
	return p.addrs[0]
}

// expect calls until the result is want.
func (w *world) expect(from *place, network string, to netip.AddrPort, want string) {
	w.Helper()
	w.inEachLand(fmt.Sprintf("%s calls %s %s", from.addrs[0], to, network), func(l *land) error {
		if got := l.call(w.Context(), from, network, to); !l.same(got, want) {
			return fmt.Errorf("got %q; want %q", got, want)
		}
		return nil
	})
}

// same reports whether a result equals the wanted one. It ignores the client address if the dataplane is a relay.
func (l *land) same(got, want string) bool {
	if l.hides {
		got, _, _ = strings.Cut(got, " saw ")
		want, _, _ = strings.Cut(want, " saw ")
	}
	return got == want
}

// expectSpread calls until all of want, and no other endpoint, have answered in one series of calls.
func (w *world) expectSpread(from *place, network string, to netip.AddrPort, want ...string) {
	w.Helper()
	w.inEachLand(fmt.Sprintf("%s calls %s %s", from.addrs[0], to, network), func(l *land) error {
		heard := make(map[string]bool)
		for range 16 * len(want) {
			got := l.call(w.Context(), from, network, to)
			i := slices.IndexFunc(want, func(s string) bool { return l.same(got, s) })
			if i < 0 {
				return fmt.Errorf("got %q; want one of %q", got, want)
			}
			heard[want[i]] = true
		}
		if len(heard) < len(want) {
			return fmt.Errorf("only %v have answered", heard)
		}
		return nil
	})
}

// expectNone calls until no Service serves the call: either the router outside rejects it, or nftables does, which drops
// packets to unused addresses of the Service CIDRs and rejects packets to unused ports of a Service.
func (w *world) expectNone(from *place, network string, to netip.AddrPort) {
	w.Helper()
	w.inEachLand(fmt.Sprintf("%s has no use for %s", from.addrs[0], to), func(l *land) error {
		got := l.call(w.Context(), from, network, to)
		if l.name == "nftables" && (got == "dropped" || got == refused) {
			return nil
		}
		for _, words := range []string{"permission denied", "no route to host", "unreachable"} {
			if strings.Contains(got, words) {
				return nil
			}
		}
		return fmt.Errorf("%q", got)
	})
}

// expectAnswer asks until the answer is want.
func (w *world) expectAnswer(from *place, url, want string) {
	w.Helper()
	w.inEachLand("asking "+url, func(l *land) error {
		if got := strings.TrimSpace(l.get(from, url)); got != want {
			return fmt.Errorf("got\n%s\nwant\n%s", got, want)
		}
		return nil
	})
}
