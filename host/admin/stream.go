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

// writeLimit is how long a caller may take to read a part of an answer. One that is stuck is let go.
const writeLimit = 10 * time.Second

// askLimit is how long a question may take: its answer to be put together, and all of it to be read by a Client.
const askLimit = 30 * time.Second

// A limited answer waits for a caller that does not read for writeLimit, and no longer.
type limited struct{ http.ResponseWriter }

func (l limited) Write(text []byte) (int, error) {
	l.limit()
	return l.ResponseWriter.Write(text)
}

func (l limited) WriteHeader(code int) {
	l.limit() // there may be nothing else
	l.ResponseWriter.WriteHeader(code)
}

// FlushError is for http.ResponseController.
func (l limited) FlushError() error {
	l.limit()
	return http.NewResponseController(l.ResponseWriter).Flush()
}

func (l limited) limit() {
	_ = http.NewResponseController(l.ResponseWriter).SetWriteDeadline(time.Now().Add(writeLimit))
}

// Unwrap is for http.ResponseController.
func (l limited) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// A list is an answer that has one item after the other. frame is the answer without them, and field the
// name that they have in it.
type list struct {
	frame any
	field string
	items iter.Seq[any]
}

// listOf returns an answer as a list, if it is one that can be long.
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

// each goes through items without a copy.
func each[T any](items []T) iter.Seq[any] {
	return func(yield func(any) bool) {
		for i := range items {
			if !yield(&items[i]) {
				return
			}
		}
	}
}

// streamed writes a list as JSON, one item after the other: the text of ten thousand is never held whole.
func streamed(w io.Writer, l list) error {
	frame, err := json.Marshal(l.frame)
	if err != nil {
		return err
	}
	none := []byte(`"` + l.field + `":[]`) // no text has it: there a quotation mark has a backslash before it
	head, tail, found := bytes.Cut(frame, none)
	if !found {
		return fmt.Errorf("a %T has no field %s to put items into", l.frame, l.field)
	}
	out := bufio.NewWriterSize(w, 64<<10)
	_, _ = out.Write(head) // what goes wrong here Flush returns
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
