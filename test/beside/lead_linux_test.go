// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"io"
	"net"
	"testing"
)

// lead passes what comes to an address of the node on to one of the test's.
func (p *proxy) lead(t testing.TB, from, to string) error {
	return p.hosts["node"].Do(func() error {
		l, err := net.Listen("tcp4", from)
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		go func() { // ends when l is closed
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go pass(conn, to) // ends with the connection
			}
		}()
		return nil
	})
}

func pass(from net.Conn, to string) {
	defer from.Close()
	on, err := net.Dial("tcp4", to)
	if err != nil {
		return
	}
	defer on.Close()
	done := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{from, on}, {on, from}} {
		go func() { // ends when either side closes
			_, _ = io.Copy(pair[0], pair[1])
			done <- struct{}{}
		}()
	}
	<-done
}
