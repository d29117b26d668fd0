// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package launch

import "context"

// NetNS is empty here: only Linux has network namespaces.
func NetNS() (string, error) { return "", nil }

// FindMarked finds none here: this system has no way to look into environments that we
// know of.
func FindMarked() ([]Marked, error) { return nil, nil }

// SeesDir is false here.
func (m Marked) SeesDir(string) bool { return false }

// End ends nothing here: there is none to end.
func (m Marked) End(context.Context) error { return ErrNotPlugin }

func traits(int) (netns, exe string) { return "", "" }

// shows returns an error here: nothing tells a process from another that gets its pid.
func (h Handle) shows(*process) error { return ErrNotPlugin }
