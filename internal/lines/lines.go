// SPDX-License-Identifier: Apache-2.0

// Package lines reads the output of a process line by line, in bounded memory and without
// losing a line.
package lines

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
)

// Max is the number of bytes kept of a line. The rest is read and dropped.
const Max = 4 << 10

// Each reads r to its end, and calls f for each line, cut at Max. Its memory does not depend
// on the input.
func Each(r io.Reader, f func(string)) {
	in := bufio.NewReaderSize(r, Max)
	for {
		part, err := in.ReadSlice('\n')
		line, lost := string(trim(part)), 0
		for err == bufio.ErrBufferFull {
			part, err = in.ReadSlice('\n')
			lost += len(trim(part))
		}
		if lost > 0 {
			line += fmt.Sprintf("… (%d bytes more)", lost)
		}
		if line != "" || err == nil {
			f(line)
		}
		if err != nil {
			return
		}
	}
}

func trim(line []byte) []byte { return bytes.TrimRight(line, "\r\n") }
