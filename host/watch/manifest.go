// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// The reasons of the notices of the files source.
const (
	SourceUnreadable = "SourceUnreadable" // a file or folder of manifests cannot be read; its last content stays in force (W007)
	ManifestInvalid  = "ManifestInvalid"  // an object in a manifest cannot be used; the last good one stays (W007)
	ManifestNote     = "ManifestNote"     // a manifest has content without effect
	DefinedTwice     = "DefinedTwice"     // two files define one object; the first by name wins: delete one
)

// A Fault is an error in a manifest.
type Fault struct {
	File    string
	Line    int // first line of the document; zero for the whole file or folder
	Reason  string
	Message string
}

func (f Fault) Error() string {
	if f.Line == 0 {
		return f.File + ": " + f.Message
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Message)
}

// An id identifies an object.
type id struct{ kind, namespace, name string }

func (i id) String() string { return i.kind + " " + strings.TrimPrefix(i.namespace+"/"+i.name, "/") }

// An object is an API object that a file defines.
type object struct {
	id    id
	file  string
	line  int
	value metav1.Object // nil after it was passed to the tracker, to free the memory
	kept  bool          // it is from earlier content of the file, because the current content has a fault
}

// A manifest is the content of one file.
type manifest struct {
	file    string
	objects []object
	faults  []Fault
	seen    map[id]int       // line of each object
	ignored sets.Set[string] // other kinds of objects, which are ignored
}

// parse reads a manifest in YAML or JSON, with any number of documents and lists. A faulty object does not hide the
// others.
func parse(file string, data []byte) *manifest {
	m := &manifest{file: file, seen: make(map[id]int), ignored: sets.New[string]()}
	line, start := 1, 0 // of a document
	for _, at := range append(separator.FindAllIndex(data, -1), []int{len(data)}) {
		m.readDocument(line, data[start:at[0]])
		line, start = line+bytes.Count(data[start:at[0]], []byte("\n")), at[0]
	}
	return m
}

var separator = regexp.MustCompile(`(?m)^---([ \t\r].*)?$`)

// maxValues limits the memory that one document uses: each of its values except one follows a comma, a colon or the end
// of a line.
const maxValues = 1 << 20

func (m *manifest) readDocument(line int, text []byte) {
	if bytes.Count(text, []byte(","))+bytes.Count(text, []byte(":"))+bytes.Count(text, []byte("\n")) > maxValues {
		m.fault(line, "the document has more than %d commas, colons and lines; try: split it into several documents", maxValues)
		return
	}
	object, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		if len(m.faults) < maxFaults {
			_, err = yaml.YAMLToJSONStrict(append(bytes.Repeat([]byte("\n"), line-1), text...)) // decode again with leading empty lines, so that the error has the right line number
		}
		m.fault(line, "%s", strings.Join(strings.Fields(err.Error()), " "))
	} else if string(object) != "null" {
		m.readObject(line, object)
	}
}

func (m *manifest) fault(line int, format string, args ...any) {
	if len(m.faults) == maxFaults {
		format, args = "more faults follow", nil
	}
	if len(m.faults) <= maxFaults {
		m.faults = append(m.faults, Fault{m.file, line, ManifestInvalid, fmt.Sprintf(format, args...)})
	}
}

// kinds are the kinds of objects that the source reads.
var kinds = map[metav1.TypeMeta]func() metav1.Object{
	{APIVersion: "v1", Kind: "Service"}:                        func() metav1.Object { return &corev1.Service{} },
	{APIVersion: "v1", Kind: "Node"}:                           func() metav1.Object { return &corev1.Node{} },
	{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}: func() metav1.Object { return &discoveryv1.EndpointSlice{} },
}

// readObject reads one object, or the objects in a list.
func (m *manifest) readObject(line int, text []byte) {
	var head struct {
		metav1.TypeMeta
		Metadata struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &head); err != nil {
		m.fault(line, "want an object with apiVersion, kind and metadata: %s", explain(text, err))
		return
	}
	if strings.HasSuffix(head.Kind, "List") {
		for _, text := range head.Items {
			m.readObject(line, text)
		}
		return
	}
	i := id{head.Kind, cmp.Or(head.Metadata.Namespace, metav1.NamespaceDefault), head.Metadata.Name}
	if i.kind == "Node" {
		i.namespace = ""
	}
	switch newObject := kinds[head.TypeMeta]; {
	case newObject != nil:
		m.decode(line, text, i, newObject())
	case head.Kind == "" || head.APIVersion == "":
		m.fault(line, "apiVersion or kind is missing")
	case slices.Contains([]string{"Service", "Node", "EndpointSlice", "Endpoints"}, head.Kind):
		m.fault(line, "%s: %s is not read; try: Service and Node of v1, EndpointSlice of discovery.k8s.io/v1", i, head.APIVersion)
	default: // ignored, because a folder often has other objects too
		m.ignored.Insert(head.Kind)
	}
}

// decode decodes an object strictly, as an API server does for kubectl, and checks it.
func (m *manifest) decode(line int, text []byte, i id, value metav1.Object) {
	errs, err := kjson.UnmarshalStrict(text, value)
	if err != nil {
		errs = []error{errors.New(explain(text, err))}
	}
	value.SetNamespace(i.namespace)
	if len(errs) == 0 {
		for _, err := range check(value) {
			errs = append(errs, err)
		}
	}
	for _, err := range errs {
		m.fault(line, "%s: %v", i, err)
	}
	if first := m.seen[i]; len(errs) == 0 && first > 0 {
		m.fault(line, "%s is defined at line %d already; the second definition is not used", i, first)
	} else if len(errs) == 0 {
		m.seen[i] = line
		m.objects = append(m.objects, object{id: i, file: m.file, line: line, value: value})
	}
}

// explain returns the text of err, an error from decoding text, with the path and the value of the field.
func explain(text []byte, err error) string {
	mistyped, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err.Error()
	}
	value := strings.TrimPrefix(mistyped.Value, "number ")
	if value == "string" || value == "bool" || value == "number" {
		text = text[:min(len(text), int(mistyped.Offset))]
		value = string(text[bytes.LastIndexAny(text, ",:[")+1:])
	}
	kind := mistyped.Type.Kind()
	want := map[reflect.Kind]string{reflect.Slice: "list", reflect.Struct: "object", reflect.Map: "object"}
	return fmt.Sprintf("%s: %s is no %s", cmp.Or(mistyped.Field, "object"), value, cmp.Or(want[kind], kind.String()))
}
