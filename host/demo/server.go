// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// work is how long a server takes for an answer, so that there is always a request
// in flight.
const work = 15 * time.Millisecond

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
