// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package userspace

// hear and device: nothing says on which device a datagram came in.
func (d *datagrams) hear(bool)      {}
func (d *datagrams) device() string { return "" }
