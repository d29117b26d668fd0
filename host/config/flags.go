// SPDX-License-Identifier: Apache-2.0

package config

import "github.com/spf13/pflag"

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

const (
	adminSocketFlag = "admin-socket"
	pluginDirFlag   = "plugin-dir"
)

// AddFlags defines the flags that set a field, for Load to find. --admin-socket
// and --plugin-dir, which other verbs have too, are AddSocketFlag's and
// AddPluginDirFlag's.
func AddFlags(flags *pflag.FlagSet) {
	for _, f := range settingFlags() {
		flags.String(f.name, "", f.usage)
	}
}

// AddSocketFlag defines --admin-socket.
func AddSocketFlag(flags *pflag.FlagSet) {
	flags.String(adminSocketFlag, "", "the unix socket of the running host")
}

// AddPluginDirFlag defines --plugin-dir.
func AddPluginDirFlag(flags *pflag.FlagSet) {
	flags.StringSlice(pluginDirFlag, nil, "look for plugins here, the first that has one wins")
}

// lookup finds the flag that sets the field at path; nil: none was defined.
func lookup(flags *pflag.FlagSet, path string) *pflag.Flag {
	if flags == nil {
		return nil
	}
	switch path {
	case "adminSocket":
		return flags.Lookup(adminSocketFlag)
	case "pluginDirs":
		return flags.Lookup(pluginDirFlag)
	}
	for _, f := range settingFlags() {
		if f.path == path {
			return flags.Lookup(f.name)
		}
	}
	return nil
}
