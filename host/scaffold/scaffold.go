// SPDX-License-Identifier: Apache-2.0

// Package scaffold makes the folder that an author of a dataplane begins with: a plugin that serves, built
// and tested as an example of this project, and what builds, proves and runs it.
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

// goVersion is the line "go" of a plugin's go.mod: that of this module.
const goVersion = "1.26.0"

//go:embed files
var files embed.FS

// The languages that there are plugins in.
const (
	Go     = "go"
	Python = "python"
)

// Languages are all of them.
var Languages = []string{Go, Python}

// A Plugin is what is to be written.
type Plugin struct {
	Name        string   // "acme"
	Language    string   // one of Languages
	Module      string   // of Go, its path
	Pointsman   string   // the program, as the files call it
	Conformance string   // the program pointsman-conformance, likewise
	Version     string   // of this module, that the plugin is built with; empty: the latest
	PluginDirs  []string // where a host finds other plugins
	Ports       [4]int   // that are free on this machine
}

// NumPorts is how many ports a host with its Service needs.
const NumPorts = 4

// A File is one of the folder.
type File struct {
	Path       string // below it, with slashes
	Text       []byte
	Executable bool
}

// Files returns all that is in p's folder, by their paths. The error says which template is wrong.
func Files(p Plugin) ([]File, error) {
	var all []File
	for _, folder := range []string{"both", p.Language} {
		err := fs.WalkDir(files, path.Join("files", folder), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := fill(name, p)
			all = append(all, File{Path: placeOf(strings.TrimPrefix(name, path.Join("files", folder)+"/")), Text: text})
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

// placeOf returns where a template's file is written. Under these names it could not be embedded, or would
// have a meaning here.
func placeOf(name string) string {
	switch name {
	case "module":
		return "go.mod"
	case "ci.yaml":
		return ".github/workflows/ci.yaml"
	case "gitignore":
		return ".gitignore"
	}
	return name
}

// fill returns a template's text, filled in.
func fill(name string, p Plugin) ([]byte, error) {
	text, err := files.ReadFile(name)
	if err != nil {
		return nil, err
	}
	t, err := template.New(name).Option("missingkey=error").Parse(string(text))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, map[string]any{
		"Name": p.Name, "Language": p.Language, "Module": p.Module, "Pointsman": p.Pointsman, "Conformance": p.Conformance, "Version": p.Version,
		"GoVersion": goVersion, "PluginDirs": dirs(p), "ClusterIP": clusterIP,
		"HealthPort": p.Ports[0], "MetricsPort": p.Ports[1], "ServicePort": p.Ports[2], "EndpointPort": p.Ports[3],
	})
	return out.Bytes(), err
}

// clusterIP is the address of the Service to try a plugin by. Its port was free on every address.
const clusterIP = "127.0.0.80"

// dirs returns the value of pluginDirs, as YAML has it between brackets.
func dirs(p Plugin) string {
	all := []string{map[string]string{Go: "bin", Python: "."}[p.Language]}
	for _, dir := range p.PluginDirs {
		all = append(all, fmt.Sprintf("%q", dir))
	}
	return strings.Join(all, ", ")
}

// sourcesOf returns the example that p begins from, under p's name.
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

// renamed returns what the function makes of each file of a folder.
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
