// SPDX-License-Identifier: Apache-2.0

package config

import "github.com/spf13/pflag"

// Load reads the settings: the defaults, the file at path unless that is empty,
// the environment, and those of flags that were given (see AddFlags; nil: none).
// The error is Problems, all of them, or one about the file itself.
func Load(path string, flags *pflag.FlagSet) (*Host, error) {
	panic("being written")
}

// AddFlags defines the flags that set a field, for Load to find.
func AddFlags(flags *pflag.FlagSet) {}

// Defaults is the file that has every field at its default, with comments.
func Defaults() string { return "" }
