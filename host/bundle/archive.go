// SPDX-License-Identifier: Apache-2.0

/*
Package bundle makes the archive that an operator hands to a colleague who is to find out what is
wrong on a node: what the host and the kernel say of themselves, and no secret.

	members ─▶ Scrubber ─▶ Archive ─▶ tar.gz, of at most Most bytes
	                          └─────▶ MANIFEST.json: what is in it, and what is missing and why

Three things keep secrets out. Members are made of fields that are named one by one, not of files or of
an environment. Settings are let through by a list (Settings). And of all text each value is taken out
that is known to be secret on this node, or looks so (Scrubber).
*/
package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
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

// An Archive is a tar.gz in the making. It holds one member at a time in memory. One goroutine uses it.
type Archive struct {
	w       io.Writer
	scrub   *Scrubber
	now     time.Time
	size    int
	members []Member
	chunk   bytes.Buffer // of one member, compressed
	zip     *gzip.Writer
	tar     *tar.Writer
}

// NewArchive begins an archive on w, from whose members scrub takes out secrets. now is their time.
func NewArchive(w io.Writer, scrub *Scrubber, now time.Time) *Archive {
	a := &Archive{w: w, scrub: scrub, now: now}
	a.zip = gzip.NewWriter(&a.chunk)
	a.tar = tar.NewWriter(a.zip)
	return a
}

// Add adds a member, or notes why there is none. One for which there is no room is left out.
// An error is one of writing the archive.
func (a *Archive) Add(name string, data []byte, missing error) error {
	m := Member{Name: a.scrub.Text(name)}
	if missing != nil {
		m.Error = a.scrub.Text(missing.Error())
	}
	if data == nil {
		a.members = append(a.members, m)
		return nil
	}
	data = []byte(a.scrub.Text(string(data)))
	m.Bytes = len(data)
	fits, err := a.write(m.Name, data, Most-reserve)
	if err == nil && !fits {
		m.Bytes, m.Error = 0, fmt.Sprintf("left out: with it the archive would be larger than %d MiB", Most>>20)
	}
	a.members = append(a.members, m)
	return err
}

// AddJSON adds v as a member.
func (a *Archive) AddJSON(name string, v any, missing error) error {
	if missing != nil {
		return a.Add(name, nil, missing)
	}
	data, err := json.MarshalIndent(v, "", " ")
	return a.Add(name, data, err)
}

// write compresses a member by itself, so that it can still be left out: gzip's streams may follow one
// another. What tar has written of it is then forgotten, too.
func (a *Archive) write(name string, data []byte, most int) (fits bool, err error) {
	a.chunk.Reset()
	a.zip.Reset(&a.chunk)
	a.tar = tar.NewWriter(a.zip)
	head := &tar.Header{Name: name, Mode: 0o600, Size: int64(len(data)), ModTime: a.now, Typeflag: tar.TypeReg}
	if err := a.tar.WriteHeader(head); err != nil {
		return false, err
	}
	if _, err := a.tar.Write(data); err != nil {
		return false, err
	}
	if err := a.tar.Flush(); err != nil {
		return false, err
	}
	if err := a.zip.Close(); err != nil {
		return false, err
	}
	if a.size+a.chunk.Len() > most {
		return false, nil
	}
	n, err := a.w.Write(a.chunk.Bytes())
	a.size += n
	return true, err
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
	if fits, err := a.write("MANIFEST.json", data, Most); err != nil || !fits {
		return m, fmt.Errorf("write MANIFEST.json: %w", err)
	}
	a.chunk.Reset()
	a.zip.Reset(&a.chunk)
	a.tar = tar.NewWriter(a.zip)
	if err := a.tar.Close(); err != nil {
		return m, err
	}
	if err := a.zip.Close(); err != nil {
		return m, err
	}
	_, err = a.w.Write(a.chunk.Bytes())
	return m, err
}
