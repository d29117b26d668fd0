// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"regexp"
	"slices"
	"strings"
)

const envPrefix = "POINTSMAN_"

// envName returns the environment variable of a field: POINTSMAN_LOGGING_LEVEL.
func envName(path string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(path))
}

// foreignEnv is what other than a user sets: Kubernetes in every pod beside a Service whose name
// begins with pointsman, and Pointsman itself for the processes that it starts.
var foreignEnv = regexp.MustCompile(`^POINTSMAN_(` +
	`(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)` +
	`|LOG_LEVEL|PLUGIN|PROCESS)$`)

// optionsEnv is what looks like an option of a plugin, or like all of them.
var optionsEnv = regexp.MustCompile(`^POINTSMAN_PLUGINS_\w+_OPTIONS(_\w*)?$`)

// strangers warns of environment variables that look like settings and are none. It is no
// error, because any program may set one for purposes of its own.
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
		if !strings.HasPrefix(name, envPrefix) || slices.Contains(known, name) || foreignEnv.MatchString(name) {
			continue
		}
		w := Problem{Where: Origin{Layer: Env, Name: name}, Why: "is no setting"}
		switch meant := nearEnv(name, known); {
		case optionsEnv.MatchString(name):
			w.Try = "a plugin's options are set in the file"
		case meant != "":
			w.Try = "did you mean " + meant + "?"
		}
		warnings = append(warnings, w)
	}
	return warnings
}

// nearEnv returns the variable that was probably meant; empty: none is near. Letters are compared
// without the underscores, where most go wrong.
func nearEnv(name string, known []string) string {
	bare := func(name string) string {
		return strings.ReplaceAll(strings.TrimPrefix(name, envPrefix), "_", "")
	}
	named := make(map[string]string)
	var words []string
	for _, k := range known {
		named[bare(k)] = k
		words = append(words, bare(k))
	}
	return named[suggest(bare(name), words)]
}
