// SPDX-License-Identifier: Apache-2.0

/*
Package bounded reads files that may not be what they seem: a pipe with no writer,
a device, a link into /proc, a file that grows without end, or one on a network file
system whose server is gone. ReadFile refuses all but regular files of a limited
size. A Caller makes calls that may never return, and waits for them only so long.
*/
package bounded

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// stallLimit bounds a read of what can be polled; a regular file of a disk cannot be.
const stallLimit = 5 * time.Second

// ReadFile reads the regular file at name, of at most limit bytes. It waits for no
// other process, but for the file system: where that may hang, see ReadFileWithin and
// Caller. The error says why without naming the file.
func ReadFile(name string, limit int64) ([]byte, error) {
	before, err := os.Stat(name) // to open a device may do something
	if err != nil {
		return nil, bare(err)
	}
	if err := ordinary(before, limit); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(name, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, bare(err)
	}
	defer file.Close()
	opened, err := file.Stat()
	if err != nil {
		return nil, bare(err)
	}
	if err := ordinary(opened, limit); err != nil {
		return nil, err
	}
	if kind := pseudo(file); kind != "" {
		return nil, fmt.Errorf("it lies in %s, whose files are no ordinary ones", kind)
	}
	_ = file.SetReadDeadline(time.Now().Add(stallLimit))
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, bare(err)
	}
	if int64(len(data)) > limit {
		return nil, tooLarge(limit)
	}
	return data, nil
}

// ReadFileWithin is ReadFile for one call with a deadline. When it passes, the
// goroutine that reads is left to end when the file system answers.
func ReadFileWithin(name string, limit int64, timeout time.Duration) ([]byte, error) {
	type answer struct {
		data []byte
		err  error
	}
	var c Caller[string, answer]
	a, ok := c.Do(name, timeout, func() answer {
		data, err := ReadFile(name, limit)
		return answer{data, err}
	})
	if !ok {
		return nil, fmt.Errorf("the file system did not answer within %s", timeout)
	}
	return a.data, a.err
}

// ordinary says why the file that info tells of is not read.
func ordinary(info os.FileInfo, limit int64) error {
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("it is no ordinary file but a %s", kindOf(info.Mode()))
	case info.Size() > limit:
		return tooLarge(limit)
	}
	return nil
}

func tooLarge(limit int64) error { return fmt.Errorf("it is larger than %d MiB", limit>>20) }

func kindOf(mode os.FileMode) string {
	switch {
	case mode.IsDir():
		return "folder"
	case mode&os.ModeNamedPipe != 0:
		return "pipe"
	case mode&os.ModeSocket != 0:
		return "socket"
	}
	return "device"
}

// bare is err without the operation and the name, which the caller puts in front.
func bare(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
