// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"
)

// writeLimit limits the time until a client has read a part of a response. The connection to a
// client that is stuck is closed.
const writeLimit = 10 * time.Second

// requestLimit limits a request: the time to compute the response, and the time for a Client to
// read all of it.
const requestLimit = 30 * time.Second

// A limited response gives a client writeLimit for each write.
type limited struct{ http.ResponseWriter }

func (l limited) Write(text []byte) (int, error) {
	l.limit()
	return l.ResponseWriter.Write(text)
}

func (l limited) WriteHeader(code int) {
	l.limit() // the response may have no body
	l.ResponseWriter.WriteHeader(code)
}

// FlushError implements an interface of http.ResponseController.
func (l limited) FlushError() error {
	l.limit()
	return http.NewResponseController(l.ResponseWriter).Flush()
}

func (l limited) limit() {
	_ = http.NewResponseController(l.ResponseWriter).SetWriteDeadline(time.Now().Add(writeLimit))
}

// Unwrap implements an interface of http.ResponseController.
func (l limited) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// A list is a response that is encoded item by item. frame is the response without items, and
// field is the JSON name of the items.
type list struct {
	frame any
	field string
	items iter.Seq[any]
}

// listOf returns a response as a list, if it may be long.
func listOf(answer any) (list, bool) {
	switch l := answer.(type) {
	case ServiceList:
		items := each(l.Items)
		l.Items = []Service{}
		return list{l, "items", items}, true
	case EventList:
		items := each(l.Items)
		l.Items = []Event{}
		return list{l, "items", items}, true
	case Diff:
		items := each(l.Changes)
		l.Changes = []Change{}
		return list{l, "changes", items}, true
	}
	return list{}, false
}

// each iterates over items without copying them.
func each[T any](items []T) iter.Seq[any] {
	return func(yield func(any) bool) {
		for i := range items {
			if !yield(&items[i]) {
				return
			}
		}
	}
}

// writeList writes a list as JSON, item by item, so that the text of ten thousand items is
// never in memory as a whole.
func writeList(w io.Writer, l list) error {
	frame, err := json.Marshal(l.frame)
	if err != nil {
		return err
	}
	none := []byte(`"` + l.field + `":[]`) // it cannot occur in a JSON string, where quotation marks are escaped
	head, tail, found := bytes.Cut(frame, none)
	if !found {
		return fmt.Errorf("a %T has no field %s to put items into", l.frame, l.field)
	}
	out := bufio.NewWriterSize(w, 64<<10)
	_, _ = out.Write(head) // Flush returns errors of these writes
	_, _ = out.Write(none[:len(none)-1])
	one := json.NewEncoder(out)
	first := true
	for item := range l.items {
		if !first {
			_ = out.WriteByte(',')
		}
		first = false
		if err := one.Encode(item); err != nil {
			return err
		}
	}
	_ = out.WriteByte(']')
	_, _ = out.Write(tail)
	_ = out.WriteByte('\n')
	return out.Flush()
}
