// SPDX-License-Identifier: Apache-2.0

// Package packages checks the packages of `make release`: it installs them, upgrades them under traffic, downgrades,
// removes and purges them, in a separate Debian system and network namespace. It also checks that a release is the same
// when it is built again. It must not change the machine's own packages. Start reading at systemd_linux_test.go.
package packages
