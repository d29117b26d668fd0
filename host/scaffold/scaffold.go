// SPDX-License-Identifier: Apache-2.0

// Package scaffold creates the folder from which an author starts a dataplane plugin: a working plugin, which is an
// example of this project, with files to build, test and run it. It copies the text of the examples and executes
// nothing. Start reading at Files.
package scaffold

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"text/template"

	pythonrelay "github.com/pointsman/pointsman/examples/python-relay"
	"github.com/pointsman/pointsman/sdk/examples"
	"github.com/pointsman/pointsman/sdk/wire"
)

// goVersion is the Go version in the go.mod of this module and of a new plugin.
const goVersion = "1.26.0"

//go:embed all:files
var files embed.FS

// Values of Plugin.Language.
const (
	Go     = "go"
	Python = "python"
)

// Languages lists the languages.
var Languages = []string{Go, Python}

// A Plugin describes the plugin to create.
type Plugin struct {
	Name        string   // "acme"
	Language    string   // one of Languages
	Module      string   // the module path, for Go
	Pointsman   string   // how the files call the program pointsman
	Conformance string   // how the files call the program pointsman-conformance
	Version     string   // of the sdk; empty for the latest
	PluginDirs  []string // folders with other plugins
	Ports       [4]int   // free ports
}

// NumPorts is the number of ports that a host and its Service need.
const NumPorts = 4

// A File is a file in the folder.
type File struct {
	Path       string // relative to the folder, with slashes
	Text       []byte
	Executable bool
}

// Files returns the files of p's folder, sorted by path.
func Files(p Plugin) ([]File, error) {
	var all []File
	for _, folder := range []string{"both", p.Language} {
		err := fs.WalkDir(files, path.Join("files", folder), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := executeTemplate(name, p)
			name = strings.TrimPrefix(name, path.Join("files", folder)+"/")
			if name == "module" { // files below a go.mod cannot be embedded
				name = "go.mod"
			}
			all = append(all, File{Path: name, Text: text})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("fill the files of a plugin in %s: %w", p.Language, err)
		}
	}
	sources, err := sourcesOf(p)
	if err != nil {
		return nil, fmt.Errorf("read the example in %s: %w", p.Language, err)
	}
	all = append(all, sources...)
	slices.SortFunc(all, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

// executeTemplate executes a template.
func executeTemplate(name string, p Plugin) ([]byte, error) {
	t, err := template.ParseFS(files, name)
	if err != nil {
		return nil, err
	}
	dirs := map[string]string{Go: "bin", Python: "."}[p.Language] // pluginDirs, without the brackets of YAML
	for _, dir := range p.PluginDirs {
		dirs += fmt.Sprintf(", %q", dir)
	}
	var out bytes.Buffer
	err = t.Option("missingkey=error").Execute(&out, map[string]any{
		"Name": p.Name, "Language": p.Language, "Module": p.Module, "Pointsman": p.Pointsman, "Conformance": p.Conformance, "Version": p.Version,
		"GoVersion": goVersion, "PluginDirs": dirs, "ClusterIP": "127.0.0.80",
		"HealthPort": p.Ports[0], "MetricsPort": p.Ports[1], "ServicePort": p.Ports[2], "EndpointPort": p.Ports[3],
	})
	return out.Bytes(), err
}

// sourcesOf returns the source files of the example, with the name of p.
func sourcesOf(p Plugin) ([]File, error) {
	if p.Language == Go {
		return renamed(examples.Relay, "relay", func(name, text string) File {
			text = strings.ReplaceAll(text, "Pointsman-dataplane-relay", "Pointsman-dataplane-"+p.Name)
			return File{Path: name, Text: []byte(strings.Replace(text, `"relay"`, fmt.Sprintf("%q", p.Name), 1))}
		})
	}
	program := "pointsman-dataplane-" + p.Name
	sources, err := renamed(pythonrelay.Sources, ".", func(name, text string) File {
		if strings.HasSuffix(name, ".proto") {
			return File{Path: "proto/" + name, Text: []byte(text)}
		}
		return File{Path: program, Executable: true, Text: []byte(strings.Replace(text, `"pyrelay"`, fmt.Sprintf("%q", p.Name), 1))}
	})
	if err != nil {
		return nil, err
	}
	protos, err := renamed(wire.Protos, ".", func(name, text string) File { return File{Path: "proto/" + name, Text: []byte(text)} })
	return append(sources, protos...), err
}

// renamed returns the result of file for each file of a folder.
func renamed(from fs.FS, folder string, file func(name, text string) File) (all []File, err error) {
	entries, err := fs.ReadDir(from, folder)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		text, err := fs.ReadFile(from, path.Join(folder, e.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, file(e.Name(), string(text)))
	}
	return all, nil
}
