// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

//go:embed defaults.yaml
var defaults string

// UsualFile is the default path of the config file. Defaults is a config file with comments that has every field at its
// default for this operating system.
var UsualFile, Defaults = places(runtime.GOOS, os.Getenv)

// places returns UsualFile and Defaults for an operating system. Windows has other folders, a pipe instead of a socket,
// and one dataplane.
func places(goos string, env func(string) string) (file, text string) {
	if goos != "windows" {
		return "/etc/pointsman/host.yaml", defaults
	}
	own := cmp.Or(env("ProgramData"), `C:\ProgramData`) + `\Pointsman`
	return own + `\host.yaml`, strings.NewReplacer(
		"\nmode: iptables\n", "\nmode: userspace\n",
		"\nadminSocket: /run/pointsman/pointsman.sock\n", "\nadminSocket: "+strconv.Quote(`\\.\pipe\pointsman`)+"\n",
		"\nstateDir: /run/pointsman\n", "\nstateDir: "+strconv.Quote(own+`\state`)+"\n",
		"\ndataDir: /var/lib/pointsman\n", "\ndataDir: "+strconv.Quote(own+`\data`)+"\n",
		"\npluginDirs: [/usr/libexec/pointsman]\n", "\npluginDirs: ["+strconv.Quote(cmp.Or(env("ProgramFiles"), `C:\Program Files`)+`\Pointsman`)+"]\n",
	).Replace(defaults)
}

// AddFlags defines the flags of run. There are few; other fields are set in the file.
func AddFlags(flags *pflag.FlagSet) {
	AddFlag(flags, "mode", "mode", "the `NAME` of the dataplane")
	AddFlag(flags, "files", "source.files.path", "read Services from this manifest file or folder, `PATH`")
	AddFlag(flags, "kubeconfig", "source.kubernetes.kubeconfig", "read Services from the cluster of the kubeconfig `FILE`")
	AddFlag(flags, "hostname-override", "hostnameOverride", "this node's `NAME` in Kubernetes")
	AddFlag(flags, "state-dir", "stateDir", "`FOLDER` for the state of the host and its plugins")
	AddFlag(flags, "log-level", "logging.level", "`LEVEL`: trace, debug, info, warn or error")
	AddFlag(flags, "log-format", "logging.format", "`FORMAT`: text or json")
}

// AddVerbFlags defines the flags of every verb.
func AddVerbFlags(flags *pflag.FlagSet) {
	AddFlag(flags, "admin-socket", "adminSocket", "unix socket of the running host, or its named pipe on Windows")
	flags.StringSlice("plugin-dir", nil, "directories to search for plugins; the first match wins")
	flags.Lookup("plugin-dir").Annotations = map[string][]string{setsField: {"pluginDirs"}}
}

// AddFlag defines a flag that sets the field at a path.
func AddFlag(flags *pflag.FlagSet, name, path, usage string) {
	flags.String(name, "", usage)
	flags.Lookup(name).Annotations = map[string][]string{setsField: {path}}
}

// setsField is the annotation of a flag with the path of the field that it sets.
const setsField = "pointsman.dev/field"

// Load returns the settings from the file at path, the environment, and those flags that the user
// has set (see AddFlag). The path may be empty, and flags nil. The error is Problems, unless the file
// cannot be read.
func Load(path string, flags *pflag.FlagSet) (*Host, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data, flags)
}

// readFile returns the content of the config file; for an empty path that is Defaults. It refuses pipes and devices,
// which could block.
func readFile(path string) (data []byte, err error) {
	if path == "" {
		return []byte(Defaults), nil
	}
	info, err := os.Stat(path)
	if err == nil && info.Mode().IsRegular() {
		data, err = os.ReadFile(path)
	} else if err == nil {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	return data, nil
}

// Parse is like Load, for a file whose content is data.
func Parse(path string, data []byte, flags *pflag.FlagSet) (*Host, error) {
	h := &Host{Plugins: make(map[string]Plugin), From: From{Path: path, Hash: hashOf(data), Loaded: time.Now(), outside: make(map[string]string)}}
	if file := h.decode(data); file != nil {
		h.merge(file, flags)
		h.check()
	}
	if all := h.From.problems; len(all) > 0 {
		slices.SortStableFunc(all, func(a, b Problem) int { return cmp.Compare(a.Field, b.Field) })
		return nil, slices.Compact(all)
	}
	return h, nil
}

// decode returns the valid fields of a file by path, or nil if the whole file is invalid.
func (h *Host) decode(data []byte) map[string]json.RawMessage {
	raw, err := yaml.YAMLToJSONStrict(data)
	given := flatten(json.RawMessage(raw))
	version, kind := unquote(given["apiVersion"]), unquote(given["kind"])
	switch {
	case err != nil:
		for _, line := range strings.Split(strings.TrimPrefix(err.Error(), "yaml: unmarshal errors:\n"), "\n") {
			h.refuse("", strings.TrimSpace(line), "")
		}
	case secondDocument.Match(data):
		h.refuse("", "has a second document", "keep one")
	case version == "kubeproxy.config.k8s.io/v1alpha1" && kind == "KubeProxyConfiguration":
		h.From.KubeProxy = raw
		return h.accept(filepath.Dir(h.From.Path), h.fromKubeProxy(given))
	case version == APIVersion && kind == Kind:
		return h.accept(filepath.Dir(h.From.Path), given)
	default:
		h.refuse("", fmt.Sprintf("has apiVersion %q and kind %q", version, kind), fmt.Sprintf("apiVersion: %s and kind: %s, as pointsman config defaults prints", APIVersion, Kind))
	}
	return nil
}

// accept returns the valid values of a layer, and refuses the others. Relative file names begin at dir, so that a config
// and its manifests can be moved together. The source is returned as one value, because the last layer that names a
// source replaces the whole source: with a flag, a cluster's config can be run with files.
func (h *Host) accept(dir string, layer map[string]json.RawMessage) map[string]json.RawMessage {
	values := make(map[string]json.RawMessage)
	for path, raw := range layer {
		want, known := checkValue(path, raw)
		top, below, _ := strings.Cut(path, ".")
		name, _, _ := strings.Cut(below, ".") // the kind of the source, or the plugin
		if want == "" && pathField.MatchString(path) {
			raw = jsonText.ReplaceAllFunc(raw, func(quoted []byte) []byte { return absolute(dir, quoted) })
		}
		switch {
		case !known:
			try := "pointsman config defaults, which prints every field"
			here, _ := fromKubeProxyField(path, "iptables", DetectClusterCIDR)
			if _, is := checkValue(here, nil); is {
				try = here + ", as this field of kube-proxy is called here"
			}
			h.refuse(path, "unknown field", try)
		case want != "":
			h.refuse(path, fmt.Sprintf("want %s, not %.200s", want, raw), "")
		case top == "source" && values[top] != nil:
			h.refuse(top, "has both kubernetes and files", "keep one")
		case top == "source" && name != "" && string(raw) == "null": // names the source without any field
			values[top] = nest(name, json.RawMessage("{}"))
		case top == "source" && name != "":
			values[top] = nest(below, raw)
		case string(raw) == "null", string(raw) == "{}" && (name == "" || top != "plugins"):
		case top == "plugins" && !isPluginName(name): // viper would convert it to lower case
			h.refuse("plugins."+name, fmt.Sprintf("%q is not the name of a plugin: want lower-case letters, digits and -", name), "")
		default:
			values[path] = raw
		}
	}
	return values
}

// secondDocument matches a document separator after content. sigs.k8s.io/yaml ignores everything after it.
var secondDocument = regexp.MustCompile(`(?ms)^[ \t]*[^#%\s-].*^---(\s|$)`)

// unquote returns the content of a JSON string, "" for null and {}, and other JSON unchanged.
func unquote(raw json.RawMessage) string {
	if text := string(raw); text != "null" && text != "{}" {
		return strings.Trim(text, `"`)
	}
	return ""
}

// flatten returns the values in the JSON of an object by path. The options of a plugin are one value.
func flatten(object any) map[string]json.RawMessage {
	all := make(map[string]json.RawMessage)
	var add func(path string, raw json.RawMessage)
	add = func(path string, raw json.RawMessage) {
		var below map[string]json.RawMessage
		if json.Unmarshal(raw, &below) != nil || len(below) == 0 || isOptions.MatchString(path) {
			all[path] = raw
			return
		}
		for name, raw := range below {
			if strings.Contains(name, ".") {
				name = strconv.Quote(name) // no field has such a name
			}
			add(strings.TrimPrefix(path+"."+name, "."), raw)
		}
	}
	text, _ := json.Marshal(object) // cannot fail: it was decoded from JSON
	add("", text)
	return all
}

var isOptions = regexp.MustCompile(`^plugins\.[^.]*\.options$`)

// typeDescriptions describes the valid values of a type.
var typeDescriptions = map[string]string{
	"string":          "text",
	"bool":            "true or false",
	"int":             "a whole number",
	"float64":         "a number",
	"config.Duration": "a time with its unit, such as 30s or 1h30m",
	"[]string":        "a list, such as [a, b]",
	"[]netip.Prefix":  "a list of address ranges, such as [10.0.0.0/8, fd00::/8]",
}

// checkValue reports whether there is a field at path. If raw is not valid for the field, want describes the valid
// values.
func checkValue(path string, raw json.RawMessage) (want string, known bool) {
	unknown, err := kjson.UnmarshalStrict(nest(path, raw), &Host{})
	if err != nil {
		want = typeDescriptions["[]netip.Prefix"] // netip's errors do not name the type
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		want = cmp.Or(typeDescriptions[wrong.Type.String()], "fields and their values")
	}
	return want, len(unknown) == 0
}

// nest returns a JSON object with a value at a path.
func nest(path string, raw json.RawMessage) json.RawMessage {
	for _, name := range slices.Backward(strings.Split(path, ".")) {
		raw, _ = json.Marshal(map[string]json.RawMessage{name: raw}) // cannot fail: raw is JSON
	}
	return raw
}

var (
	pluginEnv = regexp.MustCompile(`^POINTSMAN_PLUGINS_([A-Z0-9](?:[A-Z0-9_]{0,61}[A-Z0-9])?)_(PATH|SHA256|ADDRESS|DEBUG)$`)

	// foreignEnv matches variables that no user has set: Kubernetes sets them in the pods of a namespace with a
	// Service whose name begins with pointsman, and Pointsman sets them for its plugins.
	foreignEnv = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_\w+)?)$|^POINTSMAN_(LOG_LEVEL|PLUGIN)$`)
)

// merge sets each field to its value in the last layer that has one: the defaults, the file, the environment, flags.
func (h *Host) merge(file map[string]json.RawMessage, flags *pflag.FlagSet) {
	defaults := new(Host).decode([]byte(Defaults))
	names := make(map[string]string)
	for _, path := range append(slices.Collect(maps.Keys(defaults)), "source.files.path", "source.kubernetes.kubeconfig") {
		if path != "apiVersion" && path != "kind" && path != "source" {
			names["POINTSMAN_"+strings.ToUpper(strings.ReplaceAll(path, ".", "_"))] = path
		}
	}
	env, given := make(map[string]json.RawMessage), make(map[string]json.RawMessage)
	for _, entry := range os.Environ() {
		name, text, _ := strings.Cut(entry, "=")
		path := names[name]
		if m := pluginEnv.FindStringSubmatch(name); m != nil {
			path = strings.ToLower("plugins." + strings.ReplaceAll(m[1], "_", "-") + "." + m[2])
		}
		if path != "" {
			env[path], h.From.outside[path] = jsonOf(path, text), "env "+name
		} else if strings.HasPrefix(name, "POINTSMAN_") && !foreignEnv.MatchString(name) { // only a warning, because any program may set variables
			h.From.Warnings = append(h.From.Warnings, Problem{Where: "env " + name, Why: "is no setting",
				Try: "POINTSMAN_ and a field's path in capitals, with _ for each dot; a plugin's options are set in the file"})
		}
	}
	cmp.Or(flags, &pflag.FlagSet{}).VisitAll(func(f *pflag.Flag) { // Visit would skip the flags of a parent command
		if path := f.Annotations[setsField]; path != nil && f.Changed {
			given[path[0]], h.From.outside[path[0]] = jsonOf(path[0], f.Value.String()), "flag --"+f.Name
		}
	})
	v := viper.New()
	for _, layer := range []map[string]json.RawMessage{defaults, file, h.accept("", env), h.accept("", given)} {
		for path, raw := range layer {
			v.Set(path, raw)
		}
	}
	settings, _ := json.Marshal(v.AllSettings())
	_ = json.Unmarshal(settings, h) // cannot fail: accept has decoded each value. Names from viper are in lower case
}

// jsonOf converts the text of a flag or variable to JSON: the first form that is valid for the field at path, or a string.
func jsonOf(path, text string) json.RawMessage {
	quoted, _ := json.Marshal(text)
	list, _ := json.Marshal(strings.FieldsFunc(strings.ReplaceAll(text, ", ", ","), func(c rune) bool { return strings.ContainsRune("[],", c) }))
	candidates := []json.RawMessage{quoted, list}
	if is, err := strconv.ParseBool(text); err == nil {
		candidates = append(candidates, strconv.AppendBool(nil, is))
	}
	if json.Valid([]byte(text)) && text != "null" {
		candidates = append(candidates, json.RawMessage(text))
	}
	for _, raw := range candidates {
		if want, _ := checkValue(path, raw); want == "" {
			return raw
		}
	}
	return quoted
}

// pathField matches the fields that have names of files.
var pathField = regexp.MustCompile(`(^|\.)(path|kubeconfig|adminSocket|stateDir|dataDir|pluginDirs)$`)

// absolute resolves a relative file name, which is a JSON string, against dir or the working directory.
func absolute(dir string, quoted []byte) []byte {
	var p string
	_ = json.Unmarshal(quoted, &p) // cannot fail: jsonText has matched a string
	if p != "" && !path.IsAbs(p) && !filepath.IsAbs(p) {
		abs, _ := filepath.Abs(filepath.Join(dir, p)) // fails only without a working directory
		quoted, _ = json.Marshal(abs)
	}
	return quoted
}
