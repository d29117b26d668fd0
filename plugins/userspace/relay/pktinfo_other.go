// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package relay

// receiveDevice and device: nothing says by which device a datagram came in.
func (p *packets) receiveDevice(bool) {}
func (p *packets) device() string     { return "" }
