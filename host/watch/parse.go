// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pointsman/pointsman/host/phrase"
)

// A Manifest is what one file says.
type Manifest struct {
	Objects []Object
	Faults  []Fault
}

// A Fault is what is wrong in a file, and where.
type Fault struct {
	File    string
	Line    int
	Message string
	Note    bool // nothing is wrong; it is only said
}

func (f Fault) Error() string {
	if f.Line == 0 { // the file or folder as such
		return f.File + ": " + f.Message
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Message)
}

// compare returns the order in which faults are shown.
func (f Fault) compare(g Fault) int {
	return cmp.Or(cmp.Compare(f.File, g.File), cmp.Compare(f.Line, g.Line), cmp.Compare(f.Message, g.Message))
}

// parse reads a manifest: YAML or JSON, several documents, lists. One bad object
// does not hide the others; a document that is no YAML ends only itself. Documents that
// were there before are not read again, and their objects have no value.
func parse(file string, data []byte, before map[sum]Manifest) (Manifest, map[sum]Manifest) {
	var m Manifest
	now := make(map[sum]Manifest)
	aliased := 0
	for i, doc := range documents(data) {
		if i == maxDocuments {
			m.Faults = append(m.Faults, Fault{File: file, Line: doc.line + 1, Message: fmt.Sprintf("there are more than %d documents in it; what follows is not read: make several files of it", maxDocuments)})
			break
		}
		key := sum(sha256.Sum256(doc.text))
		part, ok := before[key]
		if !ok {
			part = readDocument(doc.text, key, &aliased)
		}
		if len(part.Objects)+len(part.Faults) > 0 && aliased <= maxAliased {
			kept := Manifest{Objects: slices.Clone(part.Objects), Faults: part.Faults}
			for i := range kept.Objects {
				kept.Objects[i].value = nil
			}
			now[key] = kept
		}
		m.add(part, file, doc.line)
	}
	return m.distinct(file), now
}

// add appends part, whose lines count from line on.
func (m *Manifest) add(part Manifest, file string, line int) {
	for _, o := range part.Objects {
		o.file, o.Line = file, o.Line+line
		m.Objects = append(m.Objects, o)
	}
	for _, f := range part.Faults {
		f.File = file
		f.Line += line
		m.Faults = append(m.Faults, f)
	}
}

// distinct drops the second of two objects of one name.
func (m Manifest) distinct(file string) Manifest {
	first := make(map[ID]int, len(m.Objects))
	m.Objects = slices.DeleteFunc(m.Objects, func(o Object) bool {
		line, twice := first[o.ID]
		if twice {
			m.Faults = append(m.Faults, Fault{File: file, Line: o.Line, Message: fmt.Sprintf("%s is defined on line %d already; this one is not used", o.ID, line)})
			return true
		}
		first[o.ID] = o.Line
		return false
	})
	slices.SortStableFunc(m.Faults, Fault.compare)
	m.Faults = slices.Compact(m.Faults) // one place may be read many times, by aliases
	if more := len(m.Faults) - maxFaults; more > 0 {
		m.Faults = append(m.Faults[:maxFaults:maxFaults], Fault{File: file, Message: fmt.Sprintf("and %d more faults", more)})
	}
	return m
}

// A document is a part of a file; its first line has line before it.
type document struct {
	line int
	text []byte
}

// documents cuts data before each line that begins a document.
func documents(data []byte) []document {
	var docs []document
	start, startLine, at, line := 0, 0, 0, 0
	for text := range bytes.Lines(data) {
		if at > start && separator(text) {
			if len(docs) > maxDocuments {
				return docs // what is too much is not even listed
			}
			docs = append(docs, document{startLine, data[start:at]})
			start, startLine = at, line
		}
		at, line = at+len(text), line+1
	}
	return append(docs, document{startLine, data[start:]})
}

func separator(line []byte) bool {
	return bytes.HasPrefix(line, []byte("---")) && (len(line) == 3 || strings.ContainsRune(" \t\r\n", rune(line[3])))
}

// A reader reads the objects of one document. Its lines count from zero.
type reader struct {
	Manifest
	key     sum
	aliased *int // bytes of JSON that aliases stood for, in the whole file
	within  int  // of how many aliases
	lists   int  // and of how many lists
}

func readDocument(text []byte, key sum, aliased *int) Manifest {
	r := &reader{key: key, aliased: aliased}
	if n := separators(text); n > maxSeparators {
		r.fault(1, "this document has more than %d commas, colons and lines; make several documents of it", maxSeparators)
		return r.Manifest
	}
	var doc yaml.Node
	switch err := yaml.NewDecoder(bytes.NewReader(text)).Decode(&doc); {
	case errors.Is(err, io.EOF):
	case err != nil:
		line, why := phrase.YAML(err)
		r.fault(max(line, 1), "this is no YAML: %s", why)
	case len(doc.Content) > 0:
		r.read(doc.Content[0], "", "")
	}
	return r.Manifest
}

// separators bounds the values of a document from above, before any memory is spent
// on them: between two there is one of these.
func separators(text []byte) int {
	return bytes.Count(text, []byte{','}) + bytes.Count(text, []byte{':'}) + bytes.Count(text, []byte{'\n'})
}

func (r *reader) fault(line int, format string, args ...any) {
	r.Faults = append(r.Faults, Fault{Line: line, Message: fmt.Sprintf(format, args...)})
}

// read reads one object, or those in a list. A list gives its items the kind and
// version that they do not have themselves.
func (r *reader) read(n *yaml.Node, apiVersion, kind string) {
	if n.Tag == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.fault(n.Line, "here should be an object with apiVersion and kind")
		return
	}
	apiVersion = cmp.Or(text(n, "apiVersion"), apiVersion)
	kind = cmp.Or(text(n, "kind"), kind)
	if item, ok := strings.CutSuffix(kind, "List"); ok {
		r.readItems(n, apiVersion, item)
		return
	}
	var value runtime.Object
	switch apiVersion + " " + kind {
	case "v1 Service":
		value = &corev1.Service{}
	case "discovery.k8s.io/v1 EndpointSlice":
		value = &discoveryv1.EndpointSlice{}
	case "v1 Node":
		value = &corev1.Node{}
	default:
		r.foreign(n.Line, apiVersion, kind)
		return
	}
	r.readObject(n, Kind(kind), value)
}

func (r *reader) readItems(n *yaml.Node, apiVersion, kind string) {
	if kind == "" {
		apiVersion = "" // kind List holds any
	}
	items := child(n, "items")
	if items == nil || items.Kind != yaml.SequenceNode {
		r.fault(n.Line, "a list needs items")
		return
	}
	if r.lists++; r.lists > maxLists {
		r.fault(n.Line, "lists are nested deeper than %d", maxLists)
	} else {
		for _, item := range items.Content {
			r.readItem(item, apiVersion, kind)
		}
	}
	r.lists--
}

func (r *reader) readItem(item *yaml.Node, apiVersion, kind string) {
	if item.Kind == yaml.AliasNode {
		r.within++
		defer func() { r.within-- }()
	}
	if r.within > 0 {
		if r.spent() {
			return // and that was said
		}
		r.spend(item.Line, leastValue)
	}
	r.read(follow(item), apiVersion, kind)
}

// spent reports whether aliases stood for more than they may.
func (r *reader) spent() bool { return *r.aliased > maxAliased }

// spend counts what aliases stand for, and says when that is too much.
func (r *reader) spend(line, bytes int) {
	before := r.spent()
	*r.aliased += bytes
	if !before && r.spent() {
		r.fault(line, "the aliases in this file stand for more than %d MiB; what they stand for is not read from here on: write it out", maxAliased>>20)
	}
}

// foreign is an object that is not ours. Those that a folder of manifests often
// has beside ours are only noted.
func (r *reader) foreign(line int, apiVersion, kind string) {
	switch {
	case kind == "" || apiVersion == "":
		r.fault(line, "apiVersion or kind is missing")
	case kind == string(Service) || kind == string(Node):
		r.fault(line, "%s of %s is not known; write apiVersion: v1", kind, apiVersion)
	case kind == string(EndpointSlice):
		r.fault(line, "%s of %s is not known; write apiVersion: discovery.k8s.io/v1", kind, apiVersion)
	case kind == "Endpoints":
		r.fault(line, "Endpoints are not read; write an EndpointSlice")
	default:
		r.Faults = append(r.Faults, Fault{Line: line, Message: fmt.Sprintf("%s is passed over; only Service, EndpointSlice and Node are read", kind), Note: true})
	}
}

func (r *reader) readObject(n *yaml.Node, kind Kind, value runtime.Object) {
	before := len(r.Faults)
	if !r.decode(n, value) {
		return
	}
	meta := value.(metav1.Object)
	switch v := value.(type) {
	case *corev1.Service:
		defaultService(v)
		checkService(r.at(n), v)
	case *discoveryv1.EndpointSlice:
		defaultSlice(v)
		checkSlice(r.at(n), v)
	case *corev1.Node:
		v.Namespace = ""
		checkNode(r.at(n), v)
	}
	if len(r.Faults) > before {
		return
	}
	r.Objects = append(r.Objects, Object{
		ID:      ID{kind, meta.GetNamespace(), meta.GetName()},
		Line:    n.Line,
		Service: meta.GetLabels()[discoveryv1.LabelServiceName],
		value:   value,
		sum:     r.sum(len(r.Objects)),
		pods:    podsIn(value),
	})
}

// sum is that of the document's object number i.
func (r *reader) sum(i int) sum {
	return sha256.Sum256(binary.BigEndian.AppendUint64(r.key[:], uint64(i)))
}
