// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
)

// manyServices returns Services with one port each and ten endpoints.
func manyServices(n int) []admin.Service {
	var endpoints []string
	for i := range 10 {
		endpoints = append(endpoints, fmt.Sprintf("10.244.%d.7:8080", i))
	}
	list := make([]admin.Service, n)
	for i := range list {
		list[i] = admin.Service{Namespace: fmt.Sprintf("team-%d", i%100), Name: fmt.Sprintf("service-%d", i), Ports: []admin.Port{{
			Name: "http", Network: "tcp4", Frontends: []string{fmt.Sprintf("cluster-ip 10.96.%d.%d:80", i/256, i%256)},
			Cluster: endpoints, Local: endpoints[:1], Ready: 10, Total: 10, Policies: []string{"cluster"}, State: "served", Since: noon.Add(-time.Hour),
		}}}
	}
	return list
}

// A counter counts what is written, and notes when the first of it came.
type counter struct {
	header http.Header
	bytes  int
	begun  time.Time
}

func (c *counter) Header() http.Header { return c.header }
func (c *counter) WriteHeader(int)     {}
func (c *counter) Write(p []byte) (int, error) {
	if c.bytes == 0 {
		c.begun = time.Now()
	}
	c.bytes += len(p)
	return len(p), nil
}

// BenchmarkServices puts together the list of 10,000 Services, all and those that one text finds.
func BenchmarkServices(b *testing.B) {
	all := manyServices(10000)
	backend := backend()
	backend.Services = func() []admin.Service { return all }
	h := New("here", backend).Handler()
	for name, path := range map[string]string{"all": "/services", "one": "/services?text=service-9999"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var first time.Duration
			bytes := 0
			for b.Loop() {
				w, asked := &counter{header: http.Header{}}, time.Now()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
				first += w.begun.Sub(asked)
				bytes = w.bytes
			}
			b.ReportMetric(float64(first.Microseconds())/1000/float64(b.N), "ms-to-first-byte")
			b.ReportMetric(float64(bytes), "bytes")
		})
	}
}
