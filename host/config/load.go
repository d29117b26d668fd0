// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
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

// UsualFile is where the file of settings is, unless another one is named. Defaults is the file that has every field
// at its default on this system, with comments.
var UsualFile, Defaults = places(runtime.GOOS, os.Getenv)

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

// AddPlanFlags defines those that plan has: without them, kube-proxy's own settings count.
func AddPlanFlags(flags *pflag.FlagSet) {
	addFlag(flags, "mode", "mode", "the dataplane that is to serve (default kube-proxy's mode)")
	addFlag(flags, "hostname-override", "hostnameOverride", "this node's name in Kubernetes (default as kube-proxy has it)")
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

// readFile reads the config file. A pipe or a device could keep the host waiting.
func readFile(path string) (data []byte, err error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
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
	h := &Host{Plugins: make(map[string]Plugin), From: From{Path: path, hash: hashOf(data), outside: make(map[string]string)}}
	var file map[string]any
	if path != "" {
		if file = h.decode(data); file == nil {
			return nil, h.From.problems
		}
	}
	h.merge(file, flags)
	h.check()
	if all := h.From.problems; len(all) > 0 {
		slices.SortStableFunc(all, func(a, b Problem) int { return cmp.Compare(a.Field, b.Field) })
		return nil, slices.Compact(all)
	}
	return h, nil
}

// decode decodes the content of a file, strictly and without regard to other layers. It returns a json.RawMessage by
// the path of each field that is there and good, or nil if the file as a whole is bad.
func (h *Host) decode(data []byte) (values map[string]any) {
	raw, err := yaml.YAMLToJSONStrict(data)
	given := leaves(json.RawMessage(raw))
	version, kind := plain(given["apiVersion"]), plain(given["kind"])
	switch {
	case err != nil:
		for _, line := range strings.Split(strings.TrimPrefix(err.Error(), "yaml: unmarshal errors:\n"), "\n") {
			h.refuse("", strings.TrimSpace(line), "")
		}
	case secondDocument.Match(data):
		h.refuse("", "has a second document", "keep one")
	case version == kubeProxyVersion && kind == kubeProxyKind:
		h.From.KubeProxy, given = raw, h.fromKubeProxy(given)
	case version != APIVersion || kind != Kind:
		h.refuse("", fmt.Sprintf("has apiVersion %q and kind %q", version, kind), fmt.Sprintf("apiVersion: %s and kind: %s, as pointsman config defaults prints", APIVersion, Kind))
	}
	if len(h.From.problems) > 0 {
		return nil
	}
	values = make(map[string]any)
	for path, raw := range given {
		plugin := strings.Split(path+".", ".")[1]
		want, known := misfit(path, raw)
		switch {
		case !known:
			try := "pointsman config defaults, which prints every field"
			here, _ := fromKubeProxyField(path, "iptables", DetectClusterCIDR)
			if _, is := misfit(here, nil); is {
				try = here + ", as this field of kube-proxy is called here"
			}
			h.refuse(path, "unknown field", try)
		case want != "":
			h.refuse(path, fmt.Sprintf("want %s, not %.200s", want, raw), "")
		case path == "source.files": // a source is named also with nothing below
			values[filesPath] = json.RawMessage(`""`)
		case path == "source.kubernetes":
			values[kubeconfig] = json.RawMessage(`""`)
		case string(raw) == "null":
		case strings.HasPrefix(path, "plugins.") && !nameSyntax.MatchString(plugin): // viper would make it lower-case
			h.refuse("plugins."+plugin, fmt.Sprintf("%q is no plugin's name: want lower-case letters, digits and -", plugin), "")
		case string(raw) != "{}" || isOptions.MatchString(path):
			values[path] = absolute(filepath.Dir(h.From.Path), path, raw)
		case strings.HasPrefix(path, "plugins."): // so is a plugin
			values[path+".debug"] = json.RawMessage("false")
		}
	}
	return values
}

// secondDocument matches what sigs.k8s.io/yaml ignores: a separator after the first line that is no comment.
var secondDocument = regexp.MustCompile(`(?ms)^[ \t]*[^#%\s-].*^---(\s|$)`)

// plain returns what a JSON string says, nothing for null and {}, and any other value as it is written.
func plain(raw json.RawMessage) string {
	if text := string(raw); text != "null" && text != "{}" {
		return strings.Trim(text, `"`)
	}
	return ""
}

// leaves returns each value in the JSON of an object, by its path. The options of a plugin are one value.
func leaves(object any) map[string]json.RawMessage {
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
	text, _ := json.Marshal(object) // of what came from JSON
	add("", text)
	return all
}

var isOptions = regexp.MustCompile(`^plugins\.[^.]*\.options$`)

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

// misfit returns what values the field at path has, if raw is none of them. It reports whether there is such a field.
func misfit(path string, raw json.RawMessage) (want string, known bool) {
	object := raw
	for _, name := range slices.Backward(strings.Split(path, ".")) {
		object, _ = json.Marshal(map[string]json.RawMessage{name: object}) // of JSON
	}
	unknown, err := kjson.UnmarshalStrict(object, &Host{})
	if err != nil {
		want = forms["[]netip.Prefix"] // whose errors have no type
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		want = cmp.Or(forms[wrong.Type.String()], "fields and their values")
	}
	return want, len(unknown) == 0
}

// The paths of the two sources.
const (
	filesPath  = "source.files.path"
	kubeconfig = "source.kubernetes.kubeconfig"
)

var (
	pluginEnv = regexp.MustCompile(`^POINTSMAN_PLUGINS_([A-Z0-9](?:[A-Z0-9_]{0,61}[A-Z0-9])?)_(PATH|SHA256|ADDRESS|DEBUG)$`)

	// foreignEnv matches what others than a user set: Kubernetes in every pod beside a Service whose name
	// begins with pointsman, and Pointsman itself for the processes that it starts.
	foreignEnv = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_\w+)?)$|^POINTSMAN_(LOG_LEVEL|PLUGIN)$`)
)

// merge gives each field the value of the last layer that has one. decode checked the values of
// the file; merge checks those of the environment and of flags. The last layer that names a source
// decides, so that a flag can have a cluster's config run with files.
func (h *Host) merge(file map[string]any, flags *pflag.FlagSet) {
	usual := new(Host).decode([]byte(Defaults))
	v := viper.New()
	v.AllowEmptyEnv(true) // set to nothing is set
	for path, raw := range usual {
		v.SetDefault(path, raw)
	}
	layer := make(map[string]int) // the last one after the defaults that has a field
	for path := range file {
		layer[path] = 1
	}
	_ = v.MergeConfigMap(file) // never errs
	names := map[string]string{envName(filesPath): filesPath}
	for path := range usual {
		if path != "apiVersion" && path != "kind" {
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
			layer[path], h.From.outside[path] = 2, "env "+name
			_ = v.BindEnv(path, name) // errs only without a key
		} else if strings.HasPrefix(name, "POINTSMAN_") && !foreignEnv.MatchString(name) { // no error: any program may set one
			h.From.Warnings = append(h.From.Warnings, Problem{Where: "env " + name, Why: "is no setting",
				Try: "POINTSMAN_ and a field's path in capitals, with _ for each dot; a plugin's options are set in the file"})
		}
	}
	if flags != nil {
		flags.VisitAll(func(f *pflag.Flag) {
			if path := f.Annotations[setsField]; path != nil && f.Changed {
				layer[path[0]], h.From.outside[path[0]] = 3, "flag --"+f.Name
				_ = v.BindPFlag(path[0], f) // errs only without a flag
			}
		})
	}
	for path := range h.From.outside {
		raw, want := jsonOf(path, v.Get(path))
		if want != "" {
			h.refuse(path, fmt.Sprintf("want %s, not %q", want, v.Get(path)), "")
			raw, _ = usual[path].(json.RawMessage)
		}
		v.Set(path, absolute("", path, raw))
	}
	settings, _ := json.Marshal(v.AllSettings())
	_ = json.Unmarshal(settings, h) // viper has names in lower case; misfit let no other value pass
	for at, port := range map[*string]uint16{&h.HealthzBindAddress: 10256, &h.MetricsBindAddress: 10249} {
		if addr, err := netip.ParseAddr(*at); err == nil { // as for kube-proxy
			*at = netip.AddrPortFrom(addr, port).String()
		}
	}
	switch {
	case layer[filesPath] > layer[kubeconfig]:
		h.Source.Kubernetes = nil
	case layer[filesPath] > 0 && layer[filesPath] == layer[kubeconfig]:
		h.refuse("source", "has both kubernetes and files", "keep one")
	default:
		h.Source.Files = nil
	}
}

// envName returns the environment variable of a field: POINTSMAN_LOGGING_LEVEL.
func envName(path string) string {
	return "POINTSMAN_" + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// jsonOf returns what a flag or variable says as the first JSON that the field at path takes, or what the field takes.
func jsonOf(path string, value any) (raw json.RawMessage, want string) {
	text := fmt.Sprint(value)
	list := strings.FieldsFunc(text, func(c rune) bool { return strings.ContainsRune("[], ", c) })
	forms := []any{value, append([]string{}, list...)} // text, or the list of a flag
	if is, err := strconv.ParseBool(text); err == nil {
		forms = append(forms, is)
	}
	if json.Valid([]byte(text)) && text != "null" {
		forms = append(forms, json.RawMessage(text))
	}
	for _, form := range forms {
		raw, _ = json.Marshal(form)
		if want, _ = misfit(path, raw); want == "" {
			return raw, ""
		}
	}
	return nil, want
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
