// SPDX-License-Identifier: Apache-2.0

package config

import "os"

// UsualFile returns where the file of settings is, unless another one is named.
func UsualFile() string { return windowsPlaces(os.Getenv).file() }

// placed returns the defaults as they are on this system.
func placed(defaults string) string { return windowsPlaces(os.Getenv).in(defaults) }
