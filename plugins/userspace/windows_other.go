// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package userspace

import "context"

// A handover is for Windows alone: elsewhere two processes of one user can open one port.
type handover struct{}

func (*handover) offer()                     {}
func (*handover) withdraw()                  {}
func (*handover) take(context.Context) error { return nil }

// handsOver sets the pipe's name.
func (p *plugin) handsOver(string) {}

// theInterfaces are nil: addresses are added on Windows alone.
func theInterfaces() interfaces { return nil }
