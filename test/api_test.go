// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// apiFile lists what the public packages export, a line each. What is new is compatible, and is listed
// with the next release.
const apiFile = "testdata/api.txt"

// publicPackages are those that docs/compatibility.md promises something of.
func publicPackages(t *testing.T) (paths []string) {
	t.Helper()
	for _, m := range regexp.MustCompile("(?m)^\\| `(sdk[a-z/]*)` \\|").FindAllStringSubmatch(read(t, "../docs/compatibility.md"), -1) {
		paths = append(paths, module+m[1])
	}
	if len(paths) < 5 {
		t.Fatalf("docs/compatibility.md lists only %q", paths)
	}
	return paths
}

// TestAPI fails where something that the listing has is gone, or is another: a plugin that was built
// against it would not build any more.
func TestAPI(t *testing.T) {
	t.Parallel()
	paths := publicPackages(t)
	imports := importer.ForCompiler(token.NewFileSet(), "gc", exports(t, paths))
	var now []string
	for _, path := range paths {
		p, err := imports.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		now = append(now, exported(p)...)
	}
	slices.Sort(now)
	if os.Getenv("POINTSMAN_UPDATE_API") != "" {
		if err := os.WriteFile(apiFile, []byte(strings.Join(now, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	listed := strings.Split(strings.TrimSpace(read(t, apiFile)), "\n")
	for _, line := range gone(listed, now) {
		t.Errorf("no longer in the API, or otherwise: %s", line)
	}
	if t.Failed() {
		t.Log("docs/compatibility.md says what may change when; where this is meant: POINTSMAN_UPDATE_API=1 go test ./test -run TestAPI, and a line in CHANGELOG.md")
	}
}

// exports finds what the compiler has written of packages and of all that they import.
func exports(t *testing.T, paths []string) func(path string) (io.ReadCloser, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, paths...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(files[path]) }
}

// TestAPIBites: a change that breaks plugins is seen, and one that does not is none.
func TestAPIBites(t *testing.T) {
	list := func(has ...*types.Func) []string {
		p := types.NewPackage("x/sdk", "sdk")
		i := types.NewInterfaceType(has, nil).Complete()
		p.Scope().Insert(types.NewTypeName(0, p, "I", nil))
		types.NewNamed(p.Scope().Lookup("I").(*types.TypeName), i, nil)
		s := types.NewStruct([]*types.Var{types.NewField(0, p, "A", types.Typ[types.Int], false)}, nil)
		types.NewNamed(types.NewTypeName(0, p, "S", nil), s, nil)
		return exported(p)
	}
	none := types.NewSignatureType(nil, nil, nil, nil, nil, false)
	a, b := types.NewFunc(0, nil, "A", none), types.NewFunc(0, nil, "B", none)
	before, after := list(a), list(a, b)
	if len(before) != 1 || len(gone(before, after)) != 1 {
		t.Errorf("a method more in an interface: %q, then %q", before, after)
	}
	if lost := gone([]string{"func A()"}, []string{"func A()", "func B()"}); len(lost) != 0 {
		t.Errorf("a function more breaks %q", lost)
	}
}

// gone returns the lines that are no longer there.
func gone(listed, now []string) []string {
	return slices.DeleteFunc(slices.Clone(listed), func(line string) bool { return slices.Contains(now, line) })
}

// exported returns a line for each thing that a package exports. A type's fields and methods have lines
// of their own, for more of them break nothing; an interface is one line, since an author implements it.
func exported(p *types.Package) (lines []string) {
	name := strings.TrimPrefix(p.Path(), module)
	short := func(other *types.Package) string {
		if other == p {
			return ""
		}
		return path.Base(other.Path())
	}
	add := func(format string, args ...any) {
		lines = append(lines, name+": "+fmt.Sprintf(format, args...))
	}
	for _, word := range p.Scope().Names() {
		o := p.Scope().Lookup(word)
		if !o.Exported() {
			continue
		}
		switch o := o.(type) {
		case *types.Const:
			add("const %s %s = %s", word, types.TypeString(o.Type(), short), o.Val().ExactString())
		case *types.TypeName:
			for _, line := range ofType(o, short) {
				add("%s", line)
			}
		case *types.Func:
			add("func %s%s", word, signature(o, short))
		default:
			add("%s", types.ObjectString(o, short))
		}
	}
	return lines
}

func ofType(o *types.TypeName, short types.Qualifier) (lines []string) {
	under := o.Type().Underlying()
	s, isStruct := under.(*types.Struct)
	if !isStruct {
		return append([]string{"type " + o.Name() + " " + words(under, short)}, methods(o, short)...)
	}
	lines = append(lines, "type "+o.Name()+" struct")
	for i := range s.NumFields() {
		if f := s.Field(i); f.Exported() {
			lines = append(lines, fmt.Sprintf("field %s.%s %s", o.Name(), f.Name(), types.TypeString(f.Type(), short)))
		}
	}
	return append(lines, methods(o, short)...)
}

func methods(o *types.TypeName, short types.Qualifier) (lines []string) {
	if types.IsInterface(o.Type()) {
		return nil
	}
	all, ofValue := types.NewMethodSet(types.NewPointer(o.Type())), types.NewMethodSet(o.Type())
	for i := range all.Len() {
		m := all.At(i).Obj().(*types.Func)
		receiver := "*" + o.Name()
		if ofValue.Lookup(m.Pkg(), m.Name()) != nil {
			receiver = o.Name()
		}
		if m.Exported() {
			lines = append(lines, fmt.Sprintf("method (%s) %s%s", receiver, m.Name(), signature(m, short)))
		}
	}
	return lines
}

// words returns a type as text; an interface by its methods, sorted.
func words(t types.Type, short types.Qualifier) string {
	i, is := t.(*types.Interface)
	if !is || !i.IsMethodSet() {
		return types.TypeString(t, short)
	}
	var all []string
	for m := range i.Methods() {
		all = append(all, m.Name()+signature(m, short))
	}
	return "interface { " + strings.Join(all, "; ") + " }"
}

// signature returns what a function takes and returns, without the names, which break nothing.
func signature(f *types.Func, short types.Qualifier) string {
	s := f.Signature()
	nameless := func(tuple *types.Tuple) *types.Tuple {
		var vars []*types.Var
		for v := range tuple.Variables() {
			vars = append(vars, types.NewParam(0, v.Pkg(), "", v.Type()))
		}
		return types.NewTuple(vars...)
	}
	text := types.TypeString(types.NewSignatureType(nil, nil, nil, nameless(s.Params()), nameless(s.Results()), s.Variadic()), short)
	var generic []string
	for p := range s.TypeParams().TypeParams() {
		generic = append(generic, p.Obj().Name()+" "+types.TypeString(p.Constraint(), short))
	}
	text = strings.TrimPrefix(text, "func")
	if len(generic) > 0 {
		return "[" + strings.Join(generic, ", ") + "]" + text
	}
	return text
}
