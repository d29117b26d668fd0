// SPDX-License-Identifier: Apache-2.0

// Package packages checks that what `make release` made brings all that a node needs: packages are installed, upgraded
// under traffic, downgraded, removed and purged, in a Debian and a network namespace of their own, and a release is the
// same when it is built again. The machine's own packages must stay as they are. Start reading at
// systemd_linux_test.go.
package packages
