// SPDX-License-Identifier: Apache-2.0

/*
Package bundle makes the archive that an operator hands to a colleague who is to find out what is
wrong on a node: what the host and the kernel say of themselves, and no secret.

	sources ─▶ Scrubber ─▶ Archive ─▶ tar.gz, of at most Most bytes
	                          └─────▶ MANIFEST.json: what is in it, and what is missing and why

A member is written while its source is still at it, part by part: neither its text nor what became of
it is held whole, however large it is.

Three things keep secrets out. Members are made of fields that are named one by one, not of files or of
an environment. Settings are let through by a list (Settings). And of all text each value is taken out
that is known to be secret on this node, or looks so (Scrubber).
*/
package bundle

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Most is how many bytes an archive has at most.
const Most = 10 << 20

// reserve is what is kept free for the manifest.
const reserve = 256 << 10

// A Member says what became of one file of an archive.
type Member struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes,omitempty"` // before compression
	Error string `json:"error,omitempty"` // why it is missing, or not whole
}

// An Archive is a tar.gz in the making. One goroutine uses it.
type Archive struct {
	file    *os.File
	most    int64 // bytes it may have
	scrub   *Scrubber
	now     time.Time
	size    int64
	members []Member
	zip     *gzip.Writer
}

// NewArchive begins an archive in a file that is empty, from whose members scrub takes out secrets. now is
// their time. The caller closes the file in the end.
func NewArchive(file *os.File, scrub *Scrubber, now time.Time) *Archive {
	return &Archive{file: file, most: Most, scrub: scrub, now: now, zip: gzip.NewWriter(io.Discard)}
}

// Add adds a member, or notes why there is none. One for which there is no room is left out.
// An error is one of writing the archive.
func (a *Archive) Add(name string, data []byte, missing error) error {
	return a.AddFrom(context.Background(), name, func(_ context.Context, w io.Writer) error {
		_, err := w.Write(data)
		return errors.Join(missing, err)
	})
}

// AddFrom adds as a member what source writes until it returns. Where source returns an error, or ctx ends
// first, the member is what was written by then, up to the end of a line, and the manifest says why it is not
// whole; if nothing was written, there is no member. One for which there is no room is left out. An error is one of writing the
// archive.
//
// source runs in a goroutine of its own, which ends when source returns. That may be after AddFrom did,
// if ctx ended: what source writes then is refused.
func (a *Archive) AddFrom(ctx context.Context, name string, source func(context.Context, io.Writer) error) error {
	parts, w := io.Pipe()
	go func() { _ = w.CloseWithError(source(ctx, w)) }()
	stop := context.AfterFunc(ctx, func() { _ = w.CloseWithError(fmt.Errorf("it took too long, or was stopped: %w", context.Cause(ctx))) })
	defer stop()
	defer parts.Close()
	m := Member{Name: a.scrub.Text(name)}
	var missing error
	size, err := a.member(m.Name, a.most-reserve, func(w io.Writer) error {
		text := a.scrub.scrubbed(w)
		var n int64
		n, missing = io.Copy(text, parts)
		if missing != nil && n == 0 {
			return errEmpty
		}
		if missing != nil {
			text.cut()
		}
		return text.Close()
	})
	m.Bytes = size
	switch {
	case errors.Is(err, errFull):
		m.Error, err = fmt.Sprintf("left out: with it the archive would be larger than %d MiB", a.most>>20), nil
	case missing != nil:
		m.Error = a.scrub.Text(missing.Error())
	}
	if errors.Is(err, errEmpty) {
		err = nil
	}
	a.members = append(a.members, m)
	return err
}

// AddJSON adds as a member what ask answers, likewise. The answer is held whole: one that can be long is
// for AddFrom.
func (a *Archive) AddJSON(ctx context.Context, name string, ask func(context.Context) (any, error)) error {
	return a.AddFrom(ctx, name, func(ctx context.Context, w io.Writer) error {
		v, err := ask(ctx)
		if err != nil {
			return err
		}
		out := json.NewEncoder(w)
		out.SetIndent("", " ")
		return out.Encode(v)
	})
}

// Why there is no member: the archive would be too large with it, or its source has nothing.
var (
	errFull  = errors.New("no room in the archive")
	errEmpty = errors.New("nothing was written")
)

// A section is a part of a file that grows as it is written, up to a limit.
type section struct {
	file     *os.File
	at, most int64
	err      error // of the first write that failed
}

func (s *section) Write(p []byte) (n int, err error) {
	switch {
	case s.err != nil:
	case s.at+int64(len(p)) > s.most:
		s.err = errFull
	default:
		n, s.err = s.file.WriteAt(p, s.at)
		s.at += int64(n)
	}
	return n, s.err
}

// A counting writer counts what passes.
type counting struct {
	w io.Writer
	n int
}

func (c *counting) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += n
	return n, err
}

// member writes what fill does, and returns how many bytes it had before compression. After an error, it is
// as if it had never been written.
//
// Tar has the size of a member before it, and that is known after it. So room is left, and filled in the
// end: the header is compressed by itself, without making it smaller, and then as long with any size.
// What is compressed by itself may follow one another in a gzip file.
func (a *Archive) member(name string, most int64, fill func(io.Writer) error) (size int, err error) {
	defer func() {
		if err != nil {
			size, err = 0, errors.Join(err, a.file.Truncate(a.size))
		}
	}()
	room, err := a.header(name, 0)
	if err != nil {
		return 0, err
	}
	out := &section{file: a.file, at: a.size + int64(len(room)), most: most}
	a.zip.Reset(out)
	body := &counting{w: a.zip}
	if err := fill(body); err != nil {
		return 0, cmp.Or(out.err, err)
	}
	padding := make([]byte, -body.n&511) // tar has blocks of 512 bytes
	if _, err := a.zip.Write(padding); err != nil {
		return 0, err
	}
	if err := a.zip.Close(); err != nil {
		return 0, err
	}
	head, err := a.header(name, body.n)
	if err == nil && len(head) != len(room) {
		err = fmt.Errorf("the header of %s has %d bytes with its size, and %d without", name, len(head), len(room))
	}
	if err != nil {
		return 0, err
	}
	if _, err := a.file.WriteAt(head, a.size); err != nil {
		return 0, err
	}
	a.size = out.at
	return body.n, nil
}

// header is that of a member, as a gzip file of its own.
func (a *Archive) header(name string, size int) ([]byte, error) {
	return stored(func(w *tar.Writer) error {
		return w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(size), ModTime: a.now, Typeflag: tar.TypeReg})
	})
}

// stored is what write writes, in a gzip file that is no smaller: its length depends on that of its content alone.
func stored(write func(*tar.Writer) error) ([]byte, error) {
	var text bytes.Buffer
	zip, err := gzip.NewWriterLevel(&text, gzip.NoCompression)
	if err != nil {
		return nil, err
	}
	if err := write(tar.NewWriter(zip)); err != nil {
		return nil, err
	}
	err = zip.Close()
	return text.Bytes(), err
}

// A Manifest is the last member of an archive.
type Manifest struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Made       time.Time `json:"made"`
	Scrubbed   int       `json:"scrubbed"` // how often a secret was taken out
	Members    []Member  `json:"members"`
}

// Close writes the manifest and the end of the archive.
func (a *Archive) Close(apiVersion string) (Manifest, error) {
	m := Manifest{apiVersion, "Bundle", a.now, a.scrub.Count(), a.members}
	data, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return m, err
	}
	_, err = a.member("MANIFEST.json", a.most, func(w io.Writer) error { _, err := w.Write(data); return err })
	if err != nil {
		return m, fmt.Errorf("write MANIFEST.json: %w", err)
	}
	end, err := stored((*tar.Writer).Close)
	if err != nil {
		return m, err
	}
	_, err = a.file.WriteAt(end, a.size)
	a.size += int64(len(end))
	return m, err
}
