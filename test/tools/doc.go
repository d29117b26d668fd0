// SPDX-License-Identifier: Apache-2.0

// Package tools is a module of its own for programs that check this project's code:
// what they bring in is nothing that a plugin, a host or a test imports.
package tools
