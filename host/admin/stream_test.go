// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
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
	l, _ := listOf(list)
	if err := writeList(&c, l); err != nil || c.all < 3<<20 || c.largest > 128<<10 {
		t.Errorf("%d bytes written, at most %d at once: %v", c.all, c.largest, err)
	}
}

// TestStreamedIsTheList: what is streamed is read as what encoding/json writes of the answer, for each kind that
// has a list.
func TestStreamedIsTheList(t *testing.T) {
	t.Parallel()
	one := manyServices(1)
	one.Items[0].Problems = []string{`"items":[]`}
	events := EventList{meta("EventList"), []Event{{Reason: "Synced", Message: `"items":[]`}, {Reason: "Failed", Warning: true}}}
	diff := Diff{Meta: meta("Diff"), Mode: "x", Changes: []Change{{Step: "add", Details: []string{"+ a"}}, {Step: "delete"}}, More: 3, Unserved: []Problem{}, Notes: []string{`"changes":[]`}}
	for _, answer := range []any{manyServices(0), one, manyServices(3), events, diff} {
		l, is := listOf(answer)
		if !is {
			t.Errorf("%T is no list", answer)
			continue
		}
		var text, want bytes.Buffer
		if err := writeList(&text, l); err != nil {
			t.Fatal(err)
		}
		whole, err := json.Marshal(answer)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Compact(&want, text.Bytes()); err != nil || want.String() != string(whole) {
			t.Errorf("%s is streamed; want %s: %v", text.Bytes(), whole, err)
		}
	}
}

// A deadlined answer notes for each part of it whether there was a deadline.
type deadlined struct {
	httptest.ResponseRecorder
	set              bool
	parts, boundless int
}

func (d *deadlined) SetWriteDeadline(at time.Time) error {
	d.set = time.Until(at) > 0 && time.Until(at) <= writeLimit
	return nil
}

func (d *deadlined) Write(text []byte) (int, error) {
	d.parts++
	if !d.set {
		d.boundless++
	}
	d.set = false
	return d.ResponseRecorder.Write(text)
}

// TestAnswersHaveDeadlines: each answer has a time in which it is put together, and each part of it one in
// which it is read.
func TestAnswersHaveDeadlines(t *testing.T) {
	t.Parallel()
	timed := 0
	long := func(ctx context.Context) {
		if at, has := ctx.Deadline(); has && time.Until(at) <= requestLimit {
			timed++
		}
	}
	b := Backend{
		Services: func() ([]Service, string) { return manyServices(2000).Items, "" },
		Events:   func() []Event { return make([]Event, 2000) },
		Service:  func(ctx context.Context, _, _ string) (ServiceDetail, error) { long(ctx); return ServiceDetail{}, nil },
		Logs: func(_ context.Context, _ string, _ bool, line func(LogLine) error) error {
			return errors.Join(line(LogLine{}), line(LogLine{}))
		},
		Modes: Modes{
			Diff: func(ctx context.Context) (Diff, error) {
				long(ctx)
				return Diff{Changes: make([]Change, 10_000)}, nil
			},
		},
	}
	for path, parts := range map[string]int{"services": 2, "services/a/b": 1, "events": 2, "diff": 2, "plugins/x/logs": 2} {
		d := &deadlined{ResponseRecorder: *httptest.NewRecorder()}
		handler(b).ServeHTTP(d, httptest.NewRequest(http.MethodGet, "http://pointsman/v1/"+path, nil))
		if d.Code != http.StatusOK || d.parts < parts || d.boundless > 0 {
			t.Errorf("%s: %d, in %d parts, %d of them without a deadline", path, d.Code, d.parts, d.boundless)
		}
	}
	if timed != 2 {
		t.Errorf("%d answers of 2 had a deadline", timed)
	}
}
