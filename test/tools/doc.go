// SPDX-License-Identifier: Apache-2.0

// Package tools is a separate module that builds programs that check this project's code. No plugin, host or test may
// import its dependencies.
package tools
