// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"
)

//go:embed defaults.yaml
var defaults string

// Defaults returns the file that has every field at its default on this system, with comments.
func Defaults() string { return placed(defaults) }

// Load reads the settings: the defaults, the file at path unless that is empty,
// the environment, and those of flags that were given (see AddFlags; nil: none).
// The error is Problems, all of them, or one about reaching the file.
func Load(path string, flags *pflag.FlagSet) (*Host, error) {
	if path == "" {
		return load("", nil, flags)
	}
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return load(path, data, flags)
}

// maxFile is more than any file of settings needs.
const maxFile = 1 << 20

// readFile reads the config file. A pipe or a device could keep the host waiting.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s is no regular file", path)
	case info.Size() > maxFile:
		err = fmt.Errorf("%s is larger than %d MiB", path, maxFile>>20)
	default:
		var data []byte
		if data, err = os.ReadFile(path); err == nil {
			return data, nil
		}
	}
	return nil, fmt.Errorf("read config: %w", err)
}

// Parse is Load of a file at path whose content is data, such as one that only another process
// has under its name.
func Parse(path string, data []byte, flags *pflag.FlagSet) (*Host, error) {
	return load(path, data, flags)
}

// load is Load of a file whose content is data.
func load(path string, data []byte, flags *pflag.FlagSet) (*Host, error) {
	layers := []*reader{read(Default, "defaults.yaml", []byte(Defaults()))}
	if path != "" {
		layers = append(layers, read(File, path, data))
	}
	var problems, warnings Problems
	for _, r := range layers {
		problems = append(problems, r.problems...)
		warnings = append(warnings, r.warnings...)
	}
	h, unreadable := merge(layers, flags)
	problems = append(problems, unreadable...)
	problems = append(problems, h.settleSource()...)
	h.settlePaths()
	h.settlePorts()
	if !slices.ContainsFunc(layers, (*reader).broken) { // what is not read at all needs no second complaint
		problems = append(problems, check(h)...)
	}
	if len(problems) > 0 {
		return nil, inOrder(problems)
	}
	h.from.path, h.from.hash = path, hashOf(data)
	h.from.warnings = slices.Concat(warnings, odd(h), strangers(h))
	return h, nil
}

// inOrder sorts problems as they stand in the file, and keeps one for each field.
func inOrder(problems Problems) Problems {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Where.Layer, b.Where.Layer), cmp.Compare(a.Where.Line, b.Where.Line))
	})
	seen := make(map[string]bool)
	return slices.DeleteFunc(problems, func(p Problem) bool {
		again := p.Field != "" && seen[p.Field]
		seen[p.Field] = true
		return again
	})
}

// merge lays the layers over one another, in a viper of their own: flag, then
// environment, then file, then default. Values go in as they were read and come
// out the same, so that an error can still say where they stand.
func merge(layers []*reader, flags *pflag.FlagSet) (*Host, Problems) {
	h := withSources(pluginsIn(layers)...)
	h.from.origins = make(map[string]Origin)
	v := viper.NewWithOptions(viper.KeyDelimiter("\n")) // no name has one: a path is one key
	v.AllowEmptyEnv(true)                               // set to nothing is set
	for _, r := range layers {
		maps.Copy(h.from.origins, r.origins)
		if r.kubeProxy != nil {
			h.from.kubeProxy = r.kubeProxy
		}
		_ = v.MergeConfigMap(r.given) // a fresh instance and our own map: it cannot fail
	}
	var problems Problems
	for _, f := range fields(h) {
		flag := flagOf(flags, f.path)
		if single(f.path) {
			_ = v.BindEnv(f.path, envName(f.path)) // errs only without a key
		}
		if flag != nil {
			_ = v.BindPFlag(f.path, flag) // errs only without a flag
		}
		problems = append(problems, set(h, f, v.Get(f.path), flag)...)
	}
	return h, problems
}

// pluginsIn returns the plugins that a file names, or only the environment.
func pluginsIn(layers []*reader) (names []string) {
	for _, r := range layers {
		names = append(names, r.plugins...)
	}
	for _, entry := range os.Environ() {
		name := pluginOf(entry)
		same := func(other string) bool { return envName(other) == envName(name) }
		if name != "" && !slices.ContainsFunc(names, same) {
			names = append(names, name)
		}
	}
	return names
}

// pluginOf returns the plugin of which an environment variable sets a field: my-plane, of
// POINTSMAN_PLUGINS_MY_PLANE_PATH=/plane.
func pluginOf(entry string) string {
	variable, _, _ := strings.Cut(entry, "=")
	rest, ok := strings.CutPrefix(variable, envName("plugins."))
	for _, f := range under("", reflect.ValueOf(&Plugin{}).Elem()) {
		capitals, set := strings.CutSuffix(rest, "_"+strings.ToUpper(f.path))
		if name := strings.ToLower(strings.ReplaceAll(capitals, "_", "-")); ok && set && single(f.path) && isName(name) {
			return name
		}
	}
	return ""
}

// single reports whether a field is one value that means something on its own: a
// file's kind does not, and a plugin's options are many.
func single(path string) bool {
	return path != "apiVersion" && path != "kind" && leafName(path) != "options"
}

// set puts the value that won into h; flag is the one that was given for it. A value that
// cannot be read leaves the field as it is.
func set(h *Host, f field, value any, flag *pflag.Flag) Problems {
	var err error
	outside := Origin{Layer: Env, Name: envName(f.path)}
	if flag != nil {
		outside = Origin{Layer: Flag, Name: flag.Name}
	}
	switch value := value.(type) {
	case nil: // a plugin's field that was not given
		return nil
	case *yaml.Node:
		err = setNode(f.value, value)
	case json.RawMessage: // a plugin's options
		f.value.SetBytes(value)
	case []string:
		h.from.origins[f.path] = outside
		err = setEach(f.value, value, setText)
	case string:
		h.from.origins[f.path] = outside
		err = setText(f.value, value)
	}
	f.keep()
	if err != nil {
		return Problems{{Where: h.Origin(f.path), Field: f.path, Why: err.Error()}}
	}
	return nil
}

// settleSource keeps the one source that was asked for. The last layer that names
// one decides, so that a flag can turn a cluster's config into a trial with files.
func (h *Host) settleSource() Problems {
	kubernetes := h.layerOf("source.kubernetes", "source.kubernetes.kubeconfig")
	files := h.layerOf("source.files", "source.files.path")
	switch {
	case kubernetes == files && files != Default:
		return Problems{{Where: h.Origin("source"), Field: "source", Why: "names both kubernetes and files", Try: "keep one"}}
	case files > kubernetes:
		h.Source.Kubernetes = nil
	default:
		h.Source.Files = nil
	}
	return nil
}

// layerOf returns the last layer that gives one of the fields at paths.
func (h *Host) layerOf(paths ...string) Layer {
	last := Default
	for _, p := range paths {
		last = max(last, h.from.origins[p].Layer)
	}
	return last
}

// settlePaths makes every path absolute. In a file, a relative one begins at the
// file's own folder: a config and its manifests can be moved together.
func (h *Host) settlePaths() {
	for _, f := range fields(h) {
		switch leafName(f.path) {
		case "path", "kubeconfig", "adminSocket", "stateDir", "dataDir":
			h.settlePath(f.path, f.value.Addr().Interface().(*string))
			f.keep()
		}
	}
	for i := range h.PluginDirs {
		h.settlePath("pluginDirs", &h.PluginDirs[i])
	}
}

// settlePorts gives an address without a port the one that kube-proxy would.
func (h *Host) settlePorts() {
	h.HealthzBindAddress = withPort(h.HealthzBindAddress, 10256)
	h.MetricsBindAddress = withPort(h.MetricsBindAddress, 10249)
}

func withPort(text string, port uint16) string {
	if addr, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(addr, port).String()
	}
	return text
}

func (h *Host) settlePath(field string, p *string) {
	if *p == "" || path.IsAbs(*p) || filepath.IsAbs(*p) {
		return
	}
	if o := h.Origin(field); o.Layer == File {
		*p = filepath.Join(filepath.Dir(o.Name), *p)
	}
	if abs, err := filepath.Abs(*p); err == nil {
		*p = abs
	}
}

func pluginNames(h *Host) []string { return slices.Sorted(maps.Keys(h.Plugins)) }

// A setting flag sets one field. There are few: the file is the place for the
// others.
type settingFlag struct{ name, path, usage string }

func settingFlags() []settingFlag {
	return []settingFlag{
		{"mode", "mode", "the dataplane that serves"},
		{"files", "source.files.path", "take Services from this manifest file, or folder of them"},
		{"kubeconfig", "source.kubernetes.kubeconfig", "take Services from the cluster of this kubeconfig"},
		{"hostname-override", "hostnameOverride", "this node's name in Kubernetes"},
		{"state-dir", "stateDir", "where the host and its plugins note what outlives them"},
		{"log-level", "logging.level", "trace, debug, info, warn or error"},
		{"log-format", "logging.format", "text or json"},
	}
}

// AddFlags defines the flags that set a field, for Load to find, but for those that
// every verb has: AddVerbFlags'.
func AddFlags(flags *pflag.FlagSet) {
	for _, f := range settingFlags() {
		flags.String(f.name, "", f.usage)
	}
}

// AddVerbFlags defines --admin-socket and --plugin-dir.
func AddVerbFlags(flags *pflag.FlagSet) {
	flags.String("admin-socket", "", "the unix socket of the running host, on Windows its named pipe")
	flags.StringSlice("plugin-dir", nil, "look for plugins here, the first that has one wins")
}

// flagOf returns the flag that was given for the field at path; nil: none was.
func flagOf(flags *pflag.FlagSet, path string) *pflag.Flag {
	if flags == nil {
		return nil
	}
	name := map[string]string{"adminSocket": "admin-socket", "pluginDirs": "plugin-dir"}[path]
	for _, f := range settingFlags() {
		if f.path == path {
			name = f.name
		}
	}
	if flag := flags.Lookup(name); flag != nil && flag.Changed {
		return flag
	}
	return nil
}
