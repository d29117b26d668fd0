// SPDX-License-Identifier: Apache-2.0

// Package swap has hosts change their mode under traffic, on a real kernel, and
// kills them and their plugins in the middle of it.
package swap
