// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	timeout = 5 * time.Second       // a request that took longer has failed
	pause   = 25 * time.Millisecond // between an answer and the same caller's next request
	work    = 15 * time.Millisecond // a server takes for an answer, so that there is always a request in flight
)

// A load sends requests to every Service, each over a connection of its own, and
// tries none a second time. It keeps what became of them.
type load struct {
	network network
	client  *http.Client

	mu      sync.Mutex // guards what follows
	answers []answer   // in the order in which they ended
	gap     gap
}

func newLoad(n network) *load {
	return &load{
		network: n,
		client:  &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: timeout},
	}
}

// start starts the callers. They end, each after the request it is at, with stop,
// which waits for them.
func (l *load) start() (stop func()) {
	var stopping atomic.Bool
	var callers sync.WaitGroup
	for _, svc := range services() {
		for range svc.callers {
			callers.Go(func() {
				for !stopping.Load() {
					l.add(l.request(svc))
					time.Sleep(pause)
				}
			})
		}
	}
	return func() {
		stopping.Store(true)
		callers.Wait()
	}
}

// request sends one request, and waits for its answer.
func (l *load) request(svc service) answer {
	a := answer{service: svc.name, began: time.Now()}
	addr := l.network.at(svc.addr).String()
	if svc.network == "udp" {
		a.from, a.err = exchange(addr)
	} else {
		a.from, a.err = l.get(addr)
	}
	if a.err == nil && !svc.has(a.from) {
		a.err = fmt.Errorf("another program answers at %s: %.40q", addr, a.from)
	}
	a.ended = time.Now()
	return a
}

func (l *load) get(addr string) (string, error) {
	resp, err := l.client.Get("http://" + addr + "/")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 512))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(body), err
}

// exchange sends a packet and waits for one back.
func exchange(addr string) (string, error) {
	conn, err := net.Dial("udp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(timeout))
	if _, err := conn.Write([]byte("what time is it?")); err != nil {
		return "", err
	}
	packet := make([]byte, 512)
	n, err := conn.Read(packet)
	if err != nil {
		return "", fmt.Errorf("wait for the answer: %w", err)
	}
	return string(packet[:n]), nil
}

// serve starts the servers behind all Services. They answer with their names.
func serve(n network) ([]io.Closer, error) {
	var all []io.Closer
	for _, svc := range services() {
		for _, ep := range svc.endpoints {
			s, err := serveOne(svc.network, n.at(ep.addr).String(), ep.name)
			if err != nil {
				return all, fmt.Errorf("start the server %s: %w", ep.name, err)
			}
			all = append(all, s)
		}
	}
	return all, nil
}

// serveOne starts one server, whose goroutine ends when it is closed.
func serveOne(network, addr, name string) (io.Closer, error) {
	if network == "udp" {
		conn, err := net.ListenPacket(network, addr)
		if err == nil {
			go answerPackets(conn, name)
		}
		return conn, err
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		return nil, err
	}
	server := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(work)
		_, _ = io.WriteString(w, name)
	})}
	go server.Serve(l)
	return server, nil
}

func answerPackets(conn net.PacketConn, name string) {
	packet := make([]byte, 512)
	for {
		_, from, err := conn.ReadFrom(packet)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = conn.WriteTo([]byte(name), from)
		}
	}
}
