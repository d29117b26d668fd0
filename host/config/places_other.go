// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package config

// UsualFile returns where the file of settings is, unless another one is named.
func UsualFile() string { return "/etc/pointsman/host.yaml" }

// placed returns the defaults as they are on this system: those of the file are.
func placed(defaults string) string { return defaults }
