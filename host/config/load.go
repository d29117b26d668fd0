// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

//go:embed defaults.yaml
var defaults string

// UsualFile returns where the file of settings is, unless another one is named.
func UsualFile() string {
	file, _ := places(runtime.GOOS, os.Getenv)
	return file
}

// Defaults returns the file that has every field at its default on this system, with comments.
func Defaults() string {
	_, text := places(runtime.GOOS, os.Getenv)
	return text
}

// places returns the usual file and the defaults of an operating system. Windows has folders of its
// own, a pipe for a socket, and one dataplane.
func places(goos string, env func(string) string) (file, text string) {
	if goos != "windows" {
		return "/etc/pointsman/host.yaml", defaults
	}
	own := cmp.Or(env("ProgramData"), `C:\ProgramData`) + `\Pointsman`
	quoted := func(path string) string { return "'" + strings.ReplaceAll(path, "'", "''") + "'" } // as YAML has it
	return own + `\host.yaml`, strings.NewReplacer(
		"\nmode: iptables\n", "\nmode: userspace\n",
		"\nadminSocket: /run/pointsman/pointsman.sock\n", "\nadminSocket: "+quoted(`\\.\pipe\pointsman`)+"\n",
		"\nstateDir: /run/pointsman\n", "\nstateDir: "+quoted(own+`\state`)+"\n",
		"\ndataDir: /var/lib/pointsman\n", "\ndataDir: "+quoted(own+`\data`)+"\n",
		"\npluginDirs: [/usr/libexec/pointsman]\n", "\npluginDirs: ["+quoted(cmp.Or(env("ProgramFiles"), `C:\Program Files`)+`\Pointsman`)+"]\n",
	).Replace(defaults)
}

// AddFlags defines the flags that set a field, for Load to find, except those that every verb has. There
// are few: the file is the place for the others.
func AddFlags(flags *pflag.FlagSet) {
	addFlag(flags, "mode", "mode", "the dataplane that serves")
	addFlag(flags, "files", "source.files.path", "take Services from this manifest file, or folder of them")
	addFlag(flags, "kubeconfig", "source.kubernetes.kubeconfig", "take Services from the cluster of this kubeconfig")
	addFlag(flags, "hostname-override", "hostnameOverride", "this node's name in Kubernetes")
	addFlag(flags, "state-dir", "stateDir", "where the host and its plugins note what outlives them")
	addFlag(flags, "log-level", "logging.level", "trace, debug, info, warn or error")
	addFlag(flags, "log-format", "logging.format", "text or json")
}

// AddVerbFlags defines --admin-socket and --plugin-dir, which every verb has.
func AddVerbFlags(flags *pflag.FlagSet) {
	addFlag(flags, "admin-socket", "adminSocket", "the unix socket of the running host, on Windows its named pipe")
	flags.StringSlice("plugin-dir", nil, "look for plugins here, the first that has one wins")
	flags.Lookup("plugin-dir").Annotations = map[string][]string{setsField: {"pluginDirs"}}
}

// setsField is the annotation of a flag with the path of the field that it sets.
const setsField = "pointsman.dev/field"

func addFlag(flags *pflag.FlagSet, name, field, usage string) {
	flags.String(name, "", usage)
	flags.Lookup(name).Annotations = map[string][]string{setsField: {field}}
}

// Load returns the settings: the defaults, the file at path unless that is empty,
// the environment, and those of flags that were given (see AddFlags; nil: none).
// The error is Problems, all of them, or one about reaching the file.
func Load(path string, flags *pflag.FlagSet) (*Host, error) {
	if path == "" {
		return Parse("", nil, flags)
	}
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data, flags)
}

// maxFile is more than any file of settings needs.
const maxFile = 1 << 20

// readFile reads the config file. A pipe or a device could keep the host waiting.
func readFile(path string) (data []byte, err error) {
	info, err := os.Stat(path)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxFile) {
		err = fmt.Errorf("%s is no regular file of at most %d MiB", path, maxFile>>20)
	}
	if err == nil {
		data, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	return data, nil
}

// Parse is Load of a file at path whose content is data, such as one that only another process
// has under its name.
func Parse(path string, data []byte, flags *pflag.FlagSet) (*Host, error) {
	h := &Host{From: From{Path: path, values: make(map[string]json.RawMessage), outside: make(map[string]string)}}
	var file map[string]any
	var problems Problems
	if path != "" {
		h.From.hash = hashOf(data)
		if file, problems = h.decode(path, data); len(file) == 0 {
			return nil, problems
		}
	}
	problems = append(problems, h.merge(file, flags)...)
	h.build()
	problems = append(problems, check(h)...)
	if len(problems) > 0 {
		slices.SortStableFunc(problems, func(a, b Problem) int { return cmp.Compare(a.Field, b.Field) })
		return nil, problems
	}
	return h, nil
}

// decode decodes the content of the file called name, strictly and without regard to other layers. It returns
// a json.RawMessage by the path of each field that is there and good.
func (h *Host) decode(name string, data []byte) (values map[string]any, problems Problems) {
	bad := func(field, why, try string) {
		problems = append(problems, Problem{Where: name, Field: field, Why: why, Try: try})
	}
	const whole = "pointsman config defaults, which prints a file to begin with"
	raw, err := yaml.YAMLToJSONStrict(data)
	var root map[string]json.RawMessage
	notObject := json.Unmarshal(raw, &root)
	given := make(map[string]json.RawMessage)
	addLeaves("", root, given)
	version, kind := plain(root["apiVersion"]), plain(root["kind"])
	switch {
	case err != nil:
		lines, twice := strings.CutPrefix(err.Error(), "yaml: unmarshal errors:\n") // of keys that are given twice
		for _, line := range strings.Split(lines, "\n") {
			bad("", strings.TrimSpace(line), map[bool]string{true: "keep one"}[twice])
		}
	case string(raw) == "null":
		bad("", "is empty", whole)
	case notObject != nil:
		bad("", "want fields and their values, not a list or one value", whole)
	case secondDocument.Match(data):
		bad("", "has a second document", "keep one")
	case version == kubeProxyVersion && kind == kubeProxyKind:
		h.From.KubeProxy, given = raw, h.fromKubeProxy(given)
	case version != APIVersion || kind != Kind:
		bad("", fmt.Sprintf("has apiVersion %q and kind %q", version, kind), fmt.Sprintf("apiVersion: %s and kind: %s", APIVersion, Kind))
	}
	if len(problems) > 0 {
		return nil, problems
	}
	values = make(map[string]any)
	for path, raw := range given {
		if why := refuse(path, raw); why == unknownField {
			bad(path, why, hint(path))
		} else if why != "" {
			bad(path, why, "")
		} else if below := map[string]string{"source.files": filesPath, "source.kubernetes": kubeconfig}[path]; below != "" {
			values[below] = json.RawMessage(`""`) // with nothing below, a source is named nevertheless
		} else if string(raw) != "null" {
			values[path] = absolute(filepath.Dir(name), path, raw)
		}
	}
	return values, problems
}

// secondDocument matches what sigs.k8s.io/yaml ignores: a separator after the first line that is no comment.
var secondDocument = regexp.MustCompile(`(?ms)^[ \t]*[^#%\s-].*^---(\s|$)`)

// plain returns what a JSON string says, nothing for null, and any other value as it is written.
func plain(raw json.RawMessage) string {
	if string(raw) == "null" {
		return ""
	}
	return strings.Trim(string(raw), `"`)
}

// addLeaves adds each value below the object at path to all, by its own path. The options of a plugin are one value.
func addLeaves(path string, object, all map[string]json.RawMessage) {
	for name, raw := range object {
		if strings.Contains(name, ".") {
			name = strconv.Quote(name) // no field has such a name
		}
		at := strings.TrimPrefix(path+"."+name, ".")
		var below map[string]json.RawMessage
		if json.Unmarshal(raw, &below) == nil && len(below) > 0 && !isOptions.MatchString(at) {
			addLeaves(at, below, all)
		} else {
			all[at] = raw
		}
	}
}

var isOptions = regexp.MustCompile(`^plugins\.[^.]*\.options$`)

const unknownField = "unknown field"

// forms says what values look like, by their types.
var forms = map[string]string{
	"string":          "text",
	"bool":            "true or false",
	"int":             "a whole number",
	"float64":         "a number",
	"config.Duration": "a time with its unit, such as 30s or 1h30m",
	"[]string":        "a list, such as [a, b]",
	"[]netip.Prefix":  "a list of address ranges, such as [10.0.0.0/8, fd00::/8]",
}

// refuse returns why a Host cannot have this value; empty: it can.
func refuse(path string, raw json.RawMessage) (why string) {
	unknown, err := kjson.UnmarshalStrict(nested(map[string]json.RawMessage{path: raw}), &Host{})
	form := forms["[]netip.Prefix"] // whose errors have no type
	var wrong *json.UnmarshalTypeError
	switch {
	case len(unknown) > 0:
		return unknownField
	case err == nil:
		return ""
	case errors.As(err, &wrong):
		form = cmp.Or(forms[wrong.Type.String()], "fields and their values")
	}
	return fmt.Sprintf("want %s, not %.200s", form, raw)
}

// hint returns what to write instead of an unknown field.
func hint(path string) string {
	here := fromKubeProxyField(path, "iptables", DetectClusterCIDR)
	if here != "" && here != path && refuse(here, json.RawMessage("null")) == "" {
		return here + ", as this field of kube-proxy is called here"
	}
	return "pointsman config defaults, which prints every field"
}

// The paths of the two sources.
const (
	filesPath  = "source.files.path"
	kubeconfig = "source.kubernetes.kubeconfig"
)

var (
	pluginEnv = regexp.MustCompile(`^POINTSMAN_PLUGINS_([A-Z0-9_]+)_(PATH|SHA256|ADDRESS|DEBUG)$`)

	// foreignEnv matches what others than a user set: Kubernetes in every pod beside a Service whose name
	// begins with pointsman, and Pointsman itself for the processes that it starts.
	foreignEnv = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_\w+)?)$|^POINTSMAN_(LOG_LEVEL|PLUGIN)$`)
)

// merge gives each field the value of the last layer that has one. decode checked the values of
// the file; merge checks those of the environment and of flags. The last layer that names a source
// decides, so that a flag can have a cluster's config run with files.
func (h *Host) merge(file map[string]any, flags *pflag.FlagSet) (problems Problems) {
	usual, _ := new(Host).decode("default", []byte(Defaults()))
	v := viper.NewWithOptions(viper.KeyDelimiter("\n")) // no path has one: each is one key
	v.AllowEmptyEnv(true)                               // set to nothing is set
	paths := maps.Clone(usual)
	maps.Copy(paths, file)
	_ = v.MergeConfigMap(maps.Clone(paths)) // errs only where a map meets another value; none is a map
	layer := make(map[string]int)           // the last one after the defaults that has a field
	for path := range file {
		layer[path] = 1
	}
	names := map[string]string{envName(filesPath): filesPath}
	for path := range usual {
		if path != "apiVersion" && path != "kind" && path != "plugins" {
			names[envName(path)] = path
		}
	}
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		path := names[name]
		if m := pluginEnv.FindStringSubmatch(name); m != nil {
			path = strings.ToLower("plugins." + strings.ReplaceAll(m[1], "_", "-") + "." + m[2])
		}
		if path != "" {
			paths[path], layer[path], h.From.outside[path] = nil, 2, "env "+name
			_ = v.BindEnv(path, name) // errs only without a key
		} else if strings.HasPrefix(name, "POINTSMAN_") && !foreignEnv.MatchString(name) { // no error: any program may set one
			h.From.Warnings = append(h.From.Warnings, Problem{Where: "env " + name, Why: "is no setting",
				Try: "POINTSMAN_ and a field's path in capitals, with _ for each dot; a plugin's options are set in the file"})
		}
	}
	if flags != nil {
		flags.VisitAll(func(f *pflag.Flag) {
			if path := f.Annotations[setsField]; path != nil && f.Changed {
				paths[path[0]], layer[path[0]], h.From.outside[path[0]] = nil, 3, "flag --"+f.Name
				_ = v.BindPFlag(path[0], f) // errs only without a flag
			}
		})
	}
	for path := range paths {
		raw, isJSON := v.Get(path).(json.RawMessage)
		if !isJSON {
			var why string
			if raw, why = jsonOf(path, v.Get(path)); why != "" {
				problems = append(problems, h.Problem(path, why, ""))
				raw, _ = usual[path].(json.RawMessage)
			}
			raw = absolute("", path, raw)
		}
		h.From.values[path] = raw
	}
	unused := filesPath
	if layer[filesPath] > layer[kubeconfig] {
		unused = kubeconfig
	} else if layer[filesPath] > 0 && layer[filesPath] == layer[kubeconfig] {
		problems = append(problems, h.Problem("source", "has both kubernetes and files", "keep one"))
	}
	delete(h.From.values, unused)
	return problems
}

// envName returns the environment variable of a field: POINTSMAN_LOGGING_LEVEL.
func envName(path string) string {
	return "POINTSMAN_" + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// jsonOf returns the first JSON of what a flag or variable says that the field takes, or why there is none.
func jsonOf(path string, value any) (raw json.RawMessage, why string) {
	forms := []any{value} // text, or the list of a flag
	text := fmt.Sprint(value)
	if literal, err := yaml.YAMLToJSONStrict([]byte(text)); err == nil && string(literal) != "null" {
		forms = append(forms, json.RawMessage(literal))
	}
	if is, err := strconv.ParseBool(text); err == nil {
		forms = append(forms, is)
	}
	list := strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' })
	for _, form := range append(forms, append([]string{}, list...)) {
		raw, _ = json.Marshal(form) // of JSON and texts
		refused := refuse(path, raw)
		if refused == "" {
			return raw, ""
		}
		why = cmp.Or(why, refused)
	}
	return nil, why
}

var pathField = regexp.MustCompile(`(^|\.)(path|kubeconfig|adminSocket|stateDir|dataDir|pluginDirs)$`)

// absolute returns the value of a field with relative paths below dir, or, where that is empty, below the
// working directory. A file's paths begin at its own folder, so that a config and its manifests can be
// moved together.
func absolute(dir, field string, raw json.RawMessage) json.RawMessage {
	if !pathField.MatchString(field) {
		return raw
	}
	return jsonText.ReplaceAllFunc(raw, func(quoted []byte) []byte {
		var p string
		_ = json.Unmarshal(quoted, &p) // it is a string of valid JSON
		if p != "" && !path.IsAbs(p) && !filepath.IsAbs(p) {
			abs, _ := filepath.Abs(filepath.Join(dir, p)) // errs only without a working directory
			quoted, _ = json.Marshal(abs)
		}
		return quoted
	})
}

// nested returns the JSON of a Host with these values by path. A nil value is left out.
func nested(values map[string]json.RawMessage) json.RawMessage {
	at, below := make(map[string]json.RawMessage), make(map[string]map[string]json.RawMessage)
	for path, raw := range values {
		switch key, rest, isBelow := strings.Cut(path, "."); {
		case raw == nil:
		case !isBelow:
			at[key] = raw
		case below[key] == nil:
			below[key] = map[string]json.RawMessage{rest: raw}
		default:
			below[key][rest] = raw
		}
	}
	for key, values := range below {
		at[key] = nested(values)
	}
	text, _ := json.Marshal(at) // of JSON
	return text
}

// build sets the fields of h by From.values.
func (h *Host) build() {
	_ = kjson.UnmarshalCaseSensitivePreserveInts(nested(h.From.values), h) // refuse let nothing else pass
	for _, ranges := range [][]netip.Prefix{h.DetectLocal.ClusterCIDRs, h.ExternalIPs.Allow} {
		for i, r := range ranges {
			ranges[i] = r.Masked()
		}
	}
	for at, port := range map[*string]uint16{&h.HealthzBindAddress: 10256, &h.MetricsBindAddress: 10249} {
		if addr, err := netip.ParseAddr(*at); err == nil { // as for kube-proxy
			*at = netip.AddrPortFrom(addr, port).String()
		}
	}
}
