// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package userspace

import "net"

// keepAll has all connections of a listener kept alive.
func keepAll(l *net.ListenConfig) { l.KeepAliveConfig = keepAlive }
