// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"slices"
	"time"
)

// maxFile bounds what is read: a hundred thousand endpoints are a quarter of it.
const maxFile = 128 << 20

// settled is the age from which on a file's time of change can be trusted to
// differ when the file does.
const settled = 2 * time.Second

// A file is what one file said when it was last read.
type file struct {
	info    os.FileInfo
	read    time.Time
	hash    sum
	objects []Object // also those that it defined before it held a fault
	faults  []Fault
	parts   map[sum]Manifest
}

// readFile reads a file if it is another than before.
func readFile(name string, before file) (file, error) {
	info, err := os.Stat(name)
	if err != nil {
		return before, err
	}
	if !info.Mode().IsRegular() {
		return before, errors.New("it is no ordinary file")
	}
	if before.stands(info) {
		return before, nil
	}
	now := file{info: info, read: time.Now()}
	data, err := readAll(name)
	if err != nil {
		return before, err
	}
	if now.hash = sha256.Sum256(data); now.hash == before.hash && before.parts != nil {
		before.info, before.read = now.info, now.read
		return before, nil
	}
	var m Manifest
	m, now.parts = parse(name, data, before.parts)
	now.objects, now.faults = m.Objects, m.Faults
	if slices.ContainsFunc(now.faults, func(f Fault) bool { return !f.Note }) {
		now.objects = append(now.objects, missing(before.objects, now.objects)...)
	}
	return now, nil
}

// stands reports whether the file cannot have changed since it was read.
func (f file) stands(info os.FileInfo) bool {
	return f.info != nil && os.SameFile(f.info, info) &&
		f.info.Size() == info.Size() && f.info.ModTime().Equal(info.ModTime()) &&
		f.read.Sub(info.ModTime()) > settled
}

func readAll(name string) ([]byte, error) {
	r, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = errors.New("it is larger than 128 MiB")
	}
	return data, err
}

// missing are the objects of before that now lacks.
func missing(before, now []Object) []Object {
	have := make(map[ID]bool, len(now))
	for _, o := range now {
		have[o.ID] = true
	}
	return slices.DeleteFunc(slices.Clone(before), func(o Object) bool { return have[o.ID] })
}
