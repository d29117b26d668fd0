// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	yamlv3 "go.yaml.in/yaml/v3"
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
	h := &Host{From: From{Path: path, hash: hashOf(data), values: make(map[string]json.RawMessage), outside: make(map[string]string)}}
	var file map[string]any
	var problems Problems
	if path != "" {
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
	h.From.Warnings = append(h.From.Warnings, odd(h)...)
	return h, nil
}

// decode decodes the content of the file called name, strictly and without regard to other layers. It returns
// a json.RawMessage by the path of each field that is there and good.
func (h *Host) decode(name string, data []byte) (values map[string]any, problems Problems) {
	bad := func(field, why, try string) {
		problems = append(problems, Problem{Where: name, Field: field, Why: why, Try: try})
	}
	const usual = "pointsman config defaults, which prints a file to begin with"
	raw, err := yaml.YAMLToJSONStrict(data)
	var root map[string]json.RawMessage
	notObject := json.Unmarshal(raw, &root)
	version, kind := plain(root["apiVersion"]), plain(root["kind"])
	switch {
	case err != nil:
		lines := strings.TrimPrefix(err.Error(), "yaml: unmarshal errors:\n") // of keys that are given twice
		for _, line := range strings.Split(lines, "\n") {
			bad("", strings.TrimSpace(line), map[bool]string{true: "keep one"}[lines != err.Error()])
		}
	case string(raw) == "null":
		bad("", "is empty", usual)
	case notObject != nil:
		bad("", "want fields and their values, not a list or one value", usual)
	case hasMore(data):
		bad("", "has a second document", "keep one")
	case version == kubeProxyVersion && kind == kubeProxyKind:
		h.From.KubeProxy, root = raw, h.fromKubeProxy(root)
	case version != APIVersion || kind != Kind:
		bad("", fmt.Sprintf("has apiVersion %q and kind %q", version, kind), fmt.Sprintf("apiVersion: %s and kind: %s", APIVersion, Kind))
	}
	if len(problems) > 0 {
		return nil, problems
	}
	values = make(map[string]any)
	eachLeaf(nil, root, func(keys []string, raw json.RawMessage) {
		field := strings.Join(keys, ".")
		if why := refuse(keys, raw); why != "" {
			bad(field, why, hint(keys, why))
			return
		}
		switch { // with nothing below, a source is named nevertheless
		case field == "source.files":
			bad("source.files.path", "is missing", "a manifest file, or a folder of them")
		case field == "source.kubernetes":
			values["source.kubernetes.kubeconfig"] = json.RawMessage(`""`)
		case string(raw) != "null":
			values[field] = raw
		}
	})
	return values, problems
}

// hasMore reports whether a second document follows, which sigs.k8s.io/yaml ignores.
func hasMore(data []byte) bool {
	var doc yamlv3.Node
	decoder := yamlv3.NewDecoder(bytes.NewReader(data))
	return decoder.Decode(&doc) == nil && !errors.Is(decoder.Decode(&doc), io.EOF)
}

// plain returns what a JSON string says, nothing for null, and any other value as it is written.
func plain(raw json.RawMessage) string {
	if string(raw) == "null" {
		return ""
	}
	return strings.Trim(string(raw), `"`)
}

// eachLeaf calls visit for each value below keys. The options of a plugin are one value.
func eachLeaf(keys []string, values map[string]json.RawMessage, visit func(keys []string, raw json.RawMessage)) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		var below map[string]json.RawMessage
		at := append(slices.Clone(keys), name)
		if json.Unmarshal(values[name], &below) == nil && len(below) > 0 && !isOptions(at) {
			eachLeaf(at, below, visit)
		} else {
			visit(at, values[name])
		}
	}
}

func isOptions(keys []string) bool {
	return len(keys) == 3 && keys[0] == "plugins" && keys[2] == "options"
}

// put sets a value below tree.
func put(tree map[string]any, keys []string, value any) {
	last := len(keys) - 1
	for _, key := range keys[:last] {
		below, ok := tree[key].(map[string]any)
		if !ok {
			below = make(map[string]any)
			tree[key] = below
		}
		tree = below
	}
	tree[keys[last]] = value
}

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
func refuse(keys []string, raw json.RawMessage) (why string) {
	tree := make(map[string]any)
	put(tree, keys, raw)
	text, _ := json.Marshal(tree) // of JSON, in maps
	unknown, err := kjson.UnmarshalStrict(text, &Host{})
	var wrong *json.UnmarshalTypeError
	switch {
	case len(unknown) > 0:
		return unknownField
	case keys[0] == "plugins" && len(keys) > 1 && !nameSyntax.MatchString(keys[1]):
		return fmt.Sprintf("%q is no plugin's name: want lower-case letters, digits and -", keys[1])
	case errors.As(err, &wrong):
		return fmt.Sprintf("want %s, not %.200s", cmp.Or(forms[wrong.Type.String()], "fields and their values"), raw)
	case err != nil: // a netip.Prefix
		return fmt.Sprintf("want %s, not %.200s", forms["[]netip.Prefix"], raw)
	}
	return ""
}

// hint returns what to write instead of a field that is refused.
func hint(keys []string, why string) string {
	if why != unknownField {
		return ""
	}
	here := fromKubeProxyField(strings.Join(keys, "."), "iptables", DetectClusterCIDR)
	if here != "" && refuse(strings.Split(here, "."), json.RawMessage("null")) == "" {
		return here + ", as this field of kube-proxy is called here"
	}
	return "pointsman config defaults, which prints every field"
}

// merge gives each field the value of the last layer that has one. decode checked the values of
// the file; merge checks those of the environment and of flags.
func (h *Host) merge(file map[string]any, flags *pflag.FlagSet) (problems Problems) {
	usual, _ := new(Host).decode("default", []byte(Defaults()))
	v := viper.NewWithOptions(viper.KeyDelimiter("\n")) // no path has one: each is one key
	v.AllowEmptyEnv(true)                               // set to nothing is set
	for path, raw := range usual {
		v.SetDefault(path, raw)
	}
	_ = v.MergeConfigMap(maps.Clone(file)) // errs only where a map meets another value; none is a map
	paths := slices.AppendSeq(slices.Collect(maps.Keys(usual)), maps.Keys(file))
	paths = append(paths, h.bindEnv(v, append(paths, "source.files.path"))...)
	if flags != nil {
		flags.VisitAll(func(f *pflag.Flag) {
			if path := f.Annotations[setsField]; path != nil && f.Changed {
				paths, h.From.outside[path[0]] = append(paths, path[0]), "flag --"+f.Name
				_ = v.BindPFlag(path[0], f) // errs only without a flag
			}
		})
	}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		dir := filepath.Dir(h.From.Path)
		raw, inFile := v.Get(path).(json.RawMessage)
		if !inFile {
			var why string
			if raw, why = jsonOf(strings.Split(path, "."), v.Get(path)); why != "" {
				problems = append(problems, h.Problem(path, why, ""))
				raw, _ = usual[path].(json.RawMessage)
			}
			dir = ""
		}
		h.From.values[path] = absolute(dir, path, raw)
	}
	return append(problems, h.chooseSource(file)...)
}

var (
	pluginEnv = regexp.MustCompile(`^POINTSMAN_PLUGINS_([A-Z0-9_]+)_(PATH|SHA256|ADDRESS|DEBUG)$`)

	// foreignEnv matches what others than a user set: Kubernetes in every pod beside a Service whose name
	// begins with pointsman, and Pointsman itself for the processes that it starts.
	foreignEnv = regexp.MustCompile(`^POINTSMAN_(` +
		`(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)` +
		`|LOG_LEVEL|PLUGIN)$`)
)

// envName returns the environment variable of a field: POINTSMAN_LOGGING_LEVEL.
func envName(path string) string {
	return "POINTSMAN_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(path))
}

// bindEnv binds the environment variables of the fields at paths and of any plugin, and returns the paths of
// those that are set. It warns of other variables that look like settings. They are no error, because any
// program may set one for purposes of its own.
func (h *Host) bindEnv(v *viper.Viper, paths []string) (set []string) {
	byName := make(map[string]string)
	for _, path := range paths {
		if path != "apiVersion" && path != "kind" && path != "plugins" && !isOptions(strings.Split(path, ".")) {
			byName[envName(path)] = path
		}
	}
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		path := byName[name]
		if m := pluginEnv.FindStringSubmatch(name); m != nil {
			path = strings.ToLower("plugins." + strings.ReplaceAll(m[1], "_", "-") + "." + m[2])
		}
		if path != "" {
			set, h.From.outside[path] = append(set, path), "env "+name
			_ = v.BindEnv(path, name) // errs only without a key
		} else if strings.HasPrefix(name, "POINTSMAN_") && !foreignEnv.MatchString(name) {
			h.From.Warnings = append(h.From.Warnings, Problem{Where: "env " + name, Why: "is no setting",
				Try: "POINTSMAN_ and a field's path in capitals, with _ for each dot; a plugin's options are set in the file"})
		}
	}
	return set
}

// jsonOf returns the first JSON of what a flag or variable says that the field takes, or why there is none.
func jsonOf(keys []string, value any) (raw json.RawMessage, why string) {
	candidates := []any{value} // text, or the list of a flag
	if text, ok := value.(string); ok {
		if literal, err := yaml.YAMLToJSONStrict([]byte(text)); err == nil && string(literal) != "null" {
			candidates = append(candidates, json.RawMessage(literal))
		}
		if is, err := strconv.ParseBool(text); err == nil {
			candidates = append(candidates, is)
		}
		list := strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' })
		candidates = append(candidates, append([]string{}, list...))
	}
	for _, c := range candidates {
		text, _ := json.Marshal(c) // of JSON and texts
		refused := refuse(keys, text)
		if refused == "" {
			return text, ""
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
			if abs, err := filepath.Abs(filepath.Join(dir, p)); err == nil {
				quoted, _ = json.Marshal(abs)
			}
		}
		return quoted
	})
}

// chooseSource keeps the source that the last layer names, so that a flag can have a cluster's config
// run with files.
func (h *Host) chooseSource(file map[string]any) Problems {
	const files, kubernetes = "source.files.path", "source.kubernetes.kubeconfig"
	layer := func(field string) int {
		switch where := h.From.outside[field]; {
		case strings.HasPrefix(where, "flag"):
			return 3
		case where != "":
			return 2
		case file[field] != nil:
			return 1
		}
		return 0
	}
	if layer(files) > layer(kubernetes) {
		delete(h.From.values, kubernetes)
		return nil
	}
	delete(h.From.values, files)
	if layer(files) > 0 && layer(files) == layer(kubernetes) {
		return Problems{h.Problem("source", "has both kubernetes and files", "keep one")}
	}
	return nil
}

// build sets the fields of h by From.values.
func (h *Host) build() {
	tree := make(map[string]any)
	for _, path := range slices.Sorted(maps.Keys(h.From.values)) {
		put(tree, strings.Split(path, "."), h.From.values[path])
	}
	text, _ := json.Marshal(tree)                         // of JSON, in maps
	_ = kjson.UnmarshalCaseSensitivePreserveInts(text, h) // refuse let nothing else pass
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
