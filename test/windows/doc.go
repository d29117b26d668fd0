// SPDX-License-Identifier: Apache-2.0

// Package windows runs the programs for Windows under wine: the host on manifest files, the
// userspace dataplane that it launches, and its verbs. The clients and the endpoints are of this
// process, for wine's sockets are the machine's. What wine 8.0 lacks is not run, and
// docs/windows.md lists it.
package windows
