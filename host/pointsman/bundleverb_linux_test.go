// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/bundle"
)

// TestBundleOfServices: the list of Services is passed on as it comes, and of those that are not served, fifty
// at most, there is all that the host knows.
func TestBundleOfServices(t *testing.T) {
	t.Parallel()
	socket := hostWith(t, 200, func(i int) admin.Service {
		return admin.Service{Namespace: "shop", Name: fmt.Sprint("web-", i), Ports: []admin.Port{{State: []string{"served", "failed"}[i%2]}}}
	})
	file, err := os.Create(filepath.Join(t.TempDir(), "archive"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	g := &gathering{ctx: t.Context(), client: admin.NewClient(socket)}
	a := bundle.NewArchive(file, bundle.NewScrubber("web-7"), time.Unix(0, 0))
	wrong, err := g.services(a)
	if err := errors.Join(err, g.details(a, wrong)); err != nil {
		t.Fatal(err)
	}
	m, err := a.Close("v1")
	if err != nil || len(m.Members) != 1+mostDetails || m.Members[1].Name != "services/shop.web-1.json" || m.Members[mostDetails].Name != "services/shop.web-99.json" {
		t.Fatalf("%+v, %v", m, err)
	}
	if list := firstMember(t, file); len(list.Items) != 200 || list.Kind != "ServiceList" || list.Items[199].Name != "web-199" {
		t.Errorf("services.json is %+v", list)
	}
}

// hostWith answers at a socket, until the test ends, as a host with n Services.
func hostWith(tb testing.TB, n int, service func(int) admin.Service) (socket string) {
	tb.Helper()
	socket = filepath.Join(tb.TempDir(), "admin.sock")
	l, err := admin.Listen(socket)
	if err != nil {
		tb.Fatal(err)
	}
	list := make([]admin.Service, n)
	for i := range list {
		list[i] = service(i)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { // until stop
		served <- admin.Serve(ctx, l, admin.Backend{
			Services: func() []admin.Service { return list },
			Service: func(_ context.Context, namespace, name string) (admin.ServiceDetail, error) {
				return admin.ServiceDetail{Service: admin.Service{Namespace: namespace, Name: name}}, nil
			},
		})
	}()
	tb.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			tb.Error(err)
		}
	})
	return socket
}

// BenchmarkBundleOfServices writes 10,000 Services of ten endpoints each into an archive, from a host's socket.
func BenchmarkBundleOfServices(b *testing.B) {
	endpoints := make([]string, 10)
	for i := range endpoints {
		endpoints[i] = fmt.Sprintf("10.244.%d.7:8080", i)
	}
	socket := hostWith(b, 10_000, func(i int) admin.Service {
		return admin.Service{Namespace: "shop", Name: fmt.Sprint("web-", i), Ports: []admin.Port{{
			Name: "http", Network: "tcp4", State: "served", Since: time.Unix(1, 0), Ready: 10, Total: 10, Policies: []string{"cluster"},
			Frontends: []string{fmt.Sprintf("cluster-ip 10.96.%d.%d:80", i/256, i%256)}, Cluster: endpoints,
		}}}
	})
	var bytes int
	for b.Loop() {
		file, err := os.Create(filepath.Join(b.TempDir(), "archive"))
		if err != nil {
			b.Fatal(err)
		}
		g := &gathering{ctx: b.Context(), client: admin.NewClient(socket)}
		a := bundle.NewArchive(file, bundle.NewScrubber("swordfish"), time.Unix(0, 0))
		if _, err := g.services(a); err != nil {
			b.Fatal(err)
		}
		m, err := a.Close("v1")
		if err := errors.Join(err, file.Close()); err != nil || m.Members[0].Error != "" {
			b.Fatalf("%+v: %v", m, err)
		}
		bytes = m.Members[0].Bytes
	}
	b.ReportMetric(float64(bytes), "bytes")
}

// firstMember reads the first member of an archive.
func firstMember(t *testing.T, archive io.ReaderAt) (list admin.ServiceList) {
	t.Helper()
	zip, err := gzip.NewReader(io.NewSectionReader(archive, 0, bundle.Most))
	if err != nil {
		t.Fatal(err)
	}
	members := tar.NewReader(zip)
	if _, err := members.Next(); err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(members).Decode(&list); err != nil {
		t.Fatal(err)
	}
	return list
}
