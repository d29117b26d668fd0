// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

// The limits of one object: a manifest is written by hand or by a tool, and a
// few lines of YAML can otherwise stand for more than memory holds.
const (
	maxBytes  = 32 << 20
	maxValues = 1 << 20
	maxDepth  = 64
)

// The limits of one file.
const (
	maxAliased    = 8 << 20 // bytes of JSON that its aliases stand for
	leastValue    = 64      // what one that is an alias counts at least
	maxSeparators = 4 << 20 // in one document
	maxDocuments  = 100000
	maxLists      = 8 // in one another
)

// A rendering is an object as JSON, and which line each of its values is from.
type rendering struct {
	json   bytes.Buffer
	starts []int // offsets at which values begin, ascending
	lines  []int // of those values

	within  int // of how many aliases that is which is added now
	aliased int // bytes that aliases stood for,
	limit   int // and how many they may
}

// errSpent is an object that is not read to its end, as its aliases stand for too much.
var errSpent = errors.New("its aliases stand for too much")

// lineAt returns the line of the value that was being read when offset was reached.
func (r *rendering) lineAt(offset int64) int {
	i := sort.SearchInts(r.starts, int(offset)) - 1
	if i < 0 {
		return 0
	}
	return r.lines[i]
}

// A misplaced error is one that knows its line.
type misplaced struct {
	line int
	why  string
}

func (m *misplaced) Error() string { return m.why }

func (r *rendering) add(n *yaml.Node, depth int) error {
	if n.Kind != yaml.AliasNode {
		return r.addPlain(n, depth)
	}
	if r.aliased > r.limit {
		return errSpent
	}
	before := r.json.Len()
	r.within++
	err := r.addPlain(follow(n), depth)
	if r.within--; r.within == 0 {
		r.aliased += r.json.Len() - before + leastValue
	}
	return err
}

func (r *rendering) addPlain(n *yaml.Node, depth int) error {
	switch {
	case r.json.Len() > maxBytes, len(r.starts) > maxValues:
		return &misplaced{n.Line, fmt.Sprintf("the object is larger than %d MiB, or holds more than %d values", maxBytes>>20, maxValues)}
	case depth > maxDepth:
		return &misplaced{n.Line, fmt.Sprintf("values are nested deeper than %d", maxDepth)}
	}
	r.starts = append(r.starts, r.json.Len())
	r.lines = append(r.lines, n.Line)
	switch n.Kind {
	case yaml.MappingNode:
		return r.mapping(n, depth)
	case yaml.SequenceNode:
		return r.sequence(n, depth)
	}
	return r.scalar(n)
}

func (r *rendering) mapping(n *yaml.Node, depth int) error {
	seen := make(map[string]bool, len(n.Content)/2)
	r.json.WriteByte('{')
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
			return &misplaced{key.Line, "a field's name must be a word, and no merge (<<)"}
		}
		if seen[key.Value] {
			return &misplaced{key.Line, fmt.Sprintf("field %q is written twice", key.Value)}
		}
		seen[key.Value] = true
		if i > 0 {
			r.json.WriteByte(',')
		}
		r.string(key.Value)
		r.json.WriteByte(':')
		if err := r.add(value, depth+1); err != nil {
			return err
		}
	}
	r.json.WriteByte('}')
	return nil
}

func (r *rendering) sequence(n *yaml.Node, depth int) error {
	r.json.WriteByte('[')
	for i, item := range n.Content {
		if i > 0 {
			r.json.WriteByte(',')
		}
		if err := r.add(item, depth+1); err != nil {
			return err
		}
	}
	r.json.WriteByte(']')
	return nil
}

func (r *rendering) scalar(n *yaml.Node) error {
	switch n.ShortTag() {
	case "!!null":
		r.json.WriteString("null")
		return nil
	case "!!bool", "!!int", "!!float":
		var v any
		if err := n.Decode(&v); err != nil {
			return &misplaced{n.Line, fmt.Sprintf("%q: %v", n.Value, err)}
		}
		text, err := json.Marshal(v)
		if err != nil {
			return &misplaced{n.Line, fmt.Sprintf("%q is no value that an object can have", n.Value)}
		}
		r.json.Write(text)
		return nil
	}
	r.string(n.Value)
	return nil
}

func (r *rendering) string(s string) {
	text, _ := json.Marshal(s) // of a string: never fails
	r.json.Write(text)
}

// follow returns what an alias stands for.
func follow(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// decode reads n into value, and notes what does not fit.
func (r *reader) decode(n *yaml.Node, value runtime.Object) bool {
	text := rendering{limit: maxAliased - *r.aliased}
	err := text.add(n, 0)
	if r.within > 0 {
		text.aliased = text.json.Len()
	}
	r.spend(n.Line, text.aliased)
	if at := new(misplaced); errors.As(err, &at) {
		r.fault(at.line, "%s", at.why)
		return false
	} else if err != nil {
		return false // errSpent, which spend has said
	}
	unknown, err := kjson.UnmarshalStrict(text.json.Bytes(), value) // as an API server does
	var mistyped *json.UnmarshalTypeError
	switch {
	case err == nil:
		for _, e := range unknown {
			r.unknown(n, e)
		}
		return len(unknown) == 0
	case errors.As(err, &mistyped):
		want, found := kindOf(mistyped), "a "+mistyped.Value
		if number, is := strings.CutPrefix(mistyped.Value, "number "); is { // it is none of that kind, or too large
			want, found = "a whole number", number
			if mistyped.Type.Kind() == reflect.Int32 {
				want = "a whole number up to 2147483647"
			}
		}
		r.fault(text.lineAt(mistyped.Offset), "%s: here should be %s, not %s", mistyped.Field, want, found)
	default:
		r.fault(n.Line, "%v", err)
	}
	return false
}

func kindOf(e *json.UnmarshalTypeError) string {
	switch kind := e.Type.Kind().String(); kind {
	case "int32", "int64":
		return "a number"
	case "slice":
		return "a list"
	case "struct", "map":
		return "an object"
	default:
		return "a " + kind
	}
}

var unknownField = regexp.MustCompile(`^unknown field "(.*)"$`)

func (r *reader) unknown(n *yaml.Node, err error) {
	found := unknownField.FindStringSubmatch(err.Error())
	if found == nil {
		r.fault(n.Line, "%v", err)
		return
	}
	r.fault(lineOf(n, found[1]), "there is no field %s", found[1])
}

// lineOf returns the line of the value at a path such as spec.ports[0].port, or of the
// nearest that unchanged there.
func lineOf(n *yaml.Node, path string) int {
	line := n.Line
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		key, value := entry(follow(n), step)
		if value == nil {
			break
		}
		n, line = value, key.Line
	}
	return line
}

// entry returns the key and the value of a field or, of a list, of the item of that
// number.
func entry(n *yaml.Node, name string) (key, value *yaml.Node) {
	if n.Kind == yaml.SequenceNode {
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i]
		}
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content) && n.Kind == yaml.MappingNode; i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

func child(n *yaml.Node, name string) *yaml.Node {
	_, value := entry(n, name)
	if value == nil {
		return nil
	}
	return follow(value)
}

func text(n *yaml.Node, name string) string {
	if v := child(n, name); v != nil && v.Kind == yaml.ScalarNode {
		return v.Value
	}
	return ""
}

// A place is where in the files an object unchanged, for faults in its fields.
type place struct {
	r *reader
	n *yaml.Node
}

func (r *reader) at(n *yaml.Node) place { return place{r, n} }

// bad notes what is wrong with the field at path.
func (p place) bad(path, format string, args ...any) {
	p.r.fault(lineOf(p.n, path), "%s: %s", path, fmt.Sprintf(format, args...))
}

// oneOf notes that a field has none of the values it may have.
func oneOf[T ~string](p place, path string, value T, may ...T) {
	if !slices.Contains(may, value) {
		p.bad(path, "%q is none of %q", value, may)
	}
}
