// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"
)

// A counter counts what is written, and keeps none of it.
type counter struct{ all, largest int }

func (c *counter) Write(text []byte) (int, error) {
	c.all, c.largest = c.all+len(text), max(c.largest, len(text))
	return len(text), nil
}

func manyServices(n int) ServiceList {
	list := ServiceList{Meta: meta("ServiceList"), Items: []Service{}}
	for i := range n {
		p := Port{Name: "http", Network: "tcp4", Ready: 10, Total: 10, State: "served", Since: time.Unix(1, 0).UTC(), Policies: []string{"cluster"}, Frontends: []string{fmt.Sprintf("cluster-ip 10.96.%d.%d:80", i/256, i%256)}, Local: []string{}}
		for e := range 10 {
			p.Cluster = append(p.Cluster, fmt.Sprintf("10.%d.%d.%d:8080", e, i/256, i%256))
		}
		list.Items = append(list.Items, Service{Namespace: "shop", Name: fmt.Sprintf("web-%d", i), Ports: []Port{p}})
	}
	return list
}

// TestServicesAreStreamed: ten thousand Services with ten endpoints each are written without their text being held.
func TestServicesAreStreamed(t *testing.T) {
	list := manyServices(10_000)
	var c counter
	if err := streamed(&c, list); err != nil || c.all < 3<<20 || c.largest > 128<<10 {
		t.Errorf("%d bytes written, at most %d at once: %v", c.all, c.largest, err)
	}
}

// TestStreamedIsTheList: what is streamed is read as what encoding/json writes of a list.
func TestStreamedIsTheList(t *testing.T) {
	t.Parallel()
	one := manyServices(1)
	one.Items[0].Problems = []string{`"items":[]`}
	for _, list := range []ServiceList{manyServices(0), one, manyServices(3)} {
		var text bytes.Buffer
		if err := streamed(&text, list); err != nil {
			t.Fatal(err)
		}
		var got ServiceList
		if err := json.Unmarshal(text.Bytes(), &got); err != nil || !reflect.DeepEqual(got, list) {
			t.Errorf("%s is read as %+v: %v", text.Bytes(), got, err)
		}
	}
}
