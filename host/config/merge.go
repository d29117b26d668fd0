// SPDX-License-Identifier: Apache-2.0

package config

import (
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"
)

// delimiter stands between the names of a path inside viper, whose own "." would
// tear keys apart.
const delimiter = "::"

// A written value stands in a file.
type written struct {
	node *yaml.Node
	from Origin
}

// merge lays the layers over one another, in a viper of their own: flag, then
// environment, then file, then default. Values go in as they were read and come
// out the same, so that an error can still say where they stand.
func merge(layers []*reader, flags *pflag.FlagSet) (*Host, Problems) {
	h := withSources(pluginsIn(layers)...)
	h.from.origins = make(map[string]Origin)
	for _, r := range layers {
		maps.Copy(h.from.origins, r.origins)
	}
	v := viper.NewWithOptions(viper.KeyDelimiter(delimiter))
	v.AllowEmptyEnv(true) // set to nothing is set
	all := fields(h)
	bind(v, all, layers, flags)
	var problems Problems
	for _, f := range all {
		problems = append(problems, set(h, f, v.Get(key(f.path)), flags)...)
	}
	for _, r := range layers {
		for name, options := range r.options { // past viper, which would change their case
			plugin := h.Plugins[name]
			plugin.Options = options
			h.Plugins[name] = plugin
		}
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

// bind tells v of every field in every layer.
func bind(v *viper.Viper, all []field, layers []*reader, flags *pflag.FlagSet) {
	for _, r := range layers {
		for path, node := range r.given {
			value := &written{node, r.origins[path]}
			if r.layer == Default {
				v.SetDefault(key(path), value)
				continue
			}
			// A fresh instance and our own nested map: merging cannot fail.
			_ = v.MergeConfigMap(nested(path, value))
		}
	}
	for _, f := range all {
		if !single(f.path) {
			continue
		}
		_ = v.BindEnv(key(f.path), envName(f.path)) // errs only without a key
		if flag := lookup(flags, f.path); flag != nil && flag.Changed {
			_ = v.BindPFlag(key(f.path), flag) // errs only without a flag
		}
	}
}

// single reports whether a field is one value that means something on its own: a
// file's kind does not, and a plugin's options are many.
func single(path string) bool {
	return path != "apiVersion" && path != "kind" && leafName(path) != "options"
}

// set puts the value that won into h. A value that cannot be read leaves the
// field as it is.
func set(h *Host, f field, value any, flags *pflag.FlagSet) Problems {
	var err error
	from := Origin{}
	switch value := value.(type) {
	case nil: // a plugin's field that was not given
		return nil
	case *written:
		from = value.from
		err = h.put(f, func(dst reflect.Value) error { return setNode(dst, value.node) })
	case []string:
		from = outside(f.path, flags)
		err = h.put(f, func(dst reflect.Value) error { return setTexts(dst, value) })
	case string:
		from = outside(f.path, flags)
		err = h.put(f, func(dst reflect.Value) error { return setText(dst, value) })
	}
	h.from.origins[f.path] = from
	if err != nil {
		return Problems{{Where: from, Field: f.path, Why: err.Error()}}
	}
	return nil
}

// put sets one field of h. Those of a plugin stand in a map, and are taken out
// and put back.
func (h *Host) put(f field, set func(reflect.Value) error) error {
	section, ok := strings.CutPrefix(f.path, "plugins.")
	if !ok {
		return set(f.value)
	}
	name, leaf, _ := strings.Cut(section, ".")
	plugin := h.Plugins[name]
	defer func() { h.Plugins[name] = plugin }()
	for _, own := range under("", reflect.ValueOf(&plugin).Elem()) {
		if own.path == leaf {
			return set(own.value)
		}
	}
	return nil
}

// outside returns the origin of a value that stands in no file.
func outside(path string, flags *pflag.FlagSet) Origin {
	if flag := lookup(flags, path); flag != nil && flag.Changed {
		return Origin{Layer: Flag, Name: flag.Name}
	}
	return Origin{Layer: Env, Name: envName(path)}
}

// key returns a path as viper has it.
func key(path string) string { return strings.ReplaceAll(path, ".", delimiter) }

// nested returns the map that has value at path.
func nested(path string, value any) map[string]any {
	parts := strings.Split(path, ".")
	for _, part := range slices.Backward(parts) {
		value = map[string]any{part: value}
	}
	return value.(map[string]any)
}

const envPrefix = "POINTSMAN_"

// envName returns the environment variable of a field: POINTSMAN_LOGGING_LEVEL.
func envName(path string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(path))
}

// strangers warns of environment variables that look like settings and are none.
// It is no error, because Kubernetes itself sets some of that form in every pod
// beside a Service called pointsman.
func strangers(h *Host) Problems {
	var known []string
	for _, f := range fields(withSources(pluginNames(h)...)) {
		if single(f.path) {
			known = append(known, envName(f.path))
		}
	}
	var warnings Problems
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, envPrefix) || slices.Contains(known, name) {
			continue
		}
		// Letters are compared without the underscores, where most go wrong.
		bare := strings.ReplaceAll(name, "_", "")
		for _, k := range known {
			if distance(bare, strings.ReplaceAll(k, "_", "")) <= 1 {
				warnings = append(warnings, Problem{Where: Origin{Layer: Env, Name: name}, Why: "is no setting", Try: "did you mean " + k + "?"})
			}
		}
	}
	return warnings
}
