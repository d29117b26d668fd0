// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/pointsman/pointsman/host/admin"
)

// get asks one of the hosts' servers, from p, and returns "CODE BODY".
func (l *land) get(p *place, url string) string {
	answer, body, err := l.fetch(p, url)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s", answer.StatusCode, body)
}

func (l *land) fetch(p *place, url string) (*http.Response, []byte, error) {
	host := p.hosts[l.index]
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, to string) (conn net.Conn, err error) {
		err = host.Do(func() error {
			conn, err = new(net.Dialer).DialContext(ctx, network, to)
			return err
		})
		return conn, err
	}}
	client := &http.Client{Timeout: 5 * time.Second, Transport: transport}
	answer, err := client.Get(url)
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer, body, err
}

// An apiConnection is a node's connection to the API server, which a test can cut.
type apiConnection struct {
	kubeconfig string
	open       func() error
	cut        func()
}

// newAPIConnection listens on the machine's loopback, and forwards connections to the API server.
func (w *world) newAPIConnection(m *machine) *apiConnection {
	w.Helper()
	const at = "127.0.0.1:6443"
	v := &apiConnection{kubeconfig: m.path("kubeconfig")}
	v.open = func() error {
		return m.net.Do(func() error {
			l, err := net.Listen("tcp4", at)
			if err == nil {
				v.cut = w.api.Forward(l)
			}
			return err
		})
	}
	if err := v.open(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { v.cut() })
	kubeconfig, err := os.ReadFile(w.api.Kubeconfig(w.token(), "https://"+at))
	if err == nil {
		err = os.WriteFile(v.kubeconfig, kubeconfig, 0o600)
	}
	if err != nil {
		w.Fatal(err)
	}
	return v
}

// warns returns an error unless the machine's host has a warning with this code.
func (m *machine) warns(ctx context.Context, code string) error {
	s, err := m.Status(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(s.Warnings, func(w admin.Warning) bool { return w.Code == code }) {
		return fmt.Errorf("the warnings are %+v; want %s", s.Warnings, code)
	}
	return nil
}
