// SPDX-License-Identifier: Apache-2.0

// Package packages holds what `make release` made to what an installed node needs: packages
// that are installed, upgraded under traffic, downgraded, removed and purged, in a Debian of
// their own and a network namespace of their own, and a release that is the same when it is
// built again.
package packages
