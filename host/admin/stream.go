// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"time"
)

// writeLimit is how long a caller may take to read a part of an answer. One that is stuck is let go.
const writeLimit = 10 * time.Second

// A limited answer waits for a caller that does not read for writeLimit, and no longer.
type limited struct{ http.ResponseWriter }

func (l limited) Write(text []byte) (int, error) {
	_ = http.NewResponseController(l.ResponseWriter).SetWriteDeadline(time.Now().Add(writeLimit))
	return l.ResponseWriter.Write(text)
}

// Unwrap is for http.ResponseController.
func (l limited) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// streamed writes a list as JSON, one Service after the other: the text of ten thousand is never held
// whole.
func streamed(w io.Writer, list ServiceList) error {
	items := list.Items
	list.Items = []Service{}
	frame, err := json.Marshal(list)
	if err != nil {
		return err
	}
	head, tail, _ := bytes.Cut(frame, []byte(`"items":[]`))
	out := bufio.NewWriterSize(w, 64<<10)
	_, _ = out.Write(head) // what goes wrong here Flush returns
	_, _ = out.WriteString(`"items":[`)
	one := json.NewEncoder(out)
	for i := range items {
		if i > 0 {
			_ = out.WriteByte(',')
		}
		if err := one.Encode(&items[i]); err != nil {
			return err
		}
	}
	_ = out.WriteByte(']')
	_, _ = out.Write(tail)
	_ = out.WriteByte('\n')
	return out.Flush()
}
