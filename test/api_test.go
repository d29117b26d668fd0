// SPDX-License-Identifier: Apache-2.0

package test

import (
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

// TestAPI compares what the public packages of docs/compatibility.md export with testdata/api.txt: what is removed
// or changed breaks programs that were built against it. POINTSMAN_UPDATE_API=1 writes the file.
func TestAPI(t *testing.T) {
	t.Parallel()
	var paths []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(sdk[a-z/]*)` \\|").FindAllStringSubmatch(read(t, "../docs/compatibility.md"), -1) {
		paths = append(paths, module+m[1])
	}
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, paths...)...).Output()
	if err != nil || len(paths) < 5 {
		t.Fatalf("go list of %q: %v", paths, err)
	}
	files := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	imports := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
	var now []string
	for _, path := range paths {
		p, err := imports.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		now = append(now, exported(p)...)
	}
	const file = "testdata/api.txt"
	if os.Getenv("POINTSMAN_UPDATE_API") != "" {
		if err := os.WriteFile(file, []byte(strings.Join(now, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines(read(t, file)) {
		if line = strings.TrimSpace(line); !slices.Contains(now, line) {
			t.Errorf("removed or changed: %s", line)
		}
	}
	if t.Failed() {
		t.Log("docs/compatibility.md says what may change when; if this may: POINTSMAN_UPDATE_API=1 go test ./test -run TestAPI, and a line in CHANGELOG.md")
	}
}

// exported returns what a package exports: a line for each name, and for each field and method of a type, since more of
// these break nothing. An interface is one line, since authors implement it.
func exported(p *types.Package) (lines []string) {
	short := func(other *types.Package) string {
		if other == p {
			return ""
		}
		return path.Base(other.Path())
	}
	add := func(o types.Object, text string) {
		if o.Exported() {
			lines = append(lines, strings.TrimPrefix(p.Path(), module)+": "+text)
		}
	}
	for _, name := range p.Scope().Names() {
		o := p.Scope().Lookup(name)
		text := types.ObjectString(o, short)
		if c, isConst := o.(*types.Const); isConst {
			text += " = " + c.Val().ExactString()
		}
		_, isType := o.(*types.TypeName)
		isType = isType && o.Exported()
		if s, isStruct := o.Type().Underlying().(*types.Struct); isStruct && isType {
			text = "type " + name + " struct"
			for f := range s.Fields() {
				add(f, "field "+name+"."+f.Name()+" "+types.TypeString(f.Type(), short))
			}
		}
		add(o, text)
		if !isType || types.IsInterface(o.Type()) {
			continue
		}
		for m := range types.NewMethodSet(types.NewPointer(o.Type())).Methods() {
			if byValue := types.NewMethodSet(o.Type()).Lookup(p, m.Obj().Name()); byValue != nil {
				m = byValue
			}
			add(m.Obj(), types.SelectionString(m, short))
		}
	}
	return lines
}
