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
	socket := filepath.Join(t.TempDir(), "admin.sock")
	l, err := admin.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { // until stop
		served <- admin.Serve(ctx, l, admin.Backend{
			Services: func() []admin.Service {
				list := make([]admin.Service, 200)
				for i := range list {
					list[i] = admin.Service{Namespace: "shop", Name: fmt.Sprint("web-", i), Ports: []admin.Port{{State: []string{"served", "failed"}[i%2]}}}
				}
				return list
			},
			Service: func(_ context.Context, namespace, name string) (admin.ServiceDetail, error) {
				return admin.ServiceDetail{Service: admin.Service{Namespace: namespace, Name: name}}, nil
			},
		})
	}()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
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
