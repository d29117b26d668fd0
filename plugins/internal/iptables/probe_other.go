// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package iptables

import (
	"errors"

	"github.com/pointsman/pointsman/sdk"
)

var errNoProgram = errors.New("no such program")

func versionOf(sdk.Family, string) (release, error) { return release{}, errors.ErrUnsupported }

// Exists asks nobody here: only Linux has iptables.
func (t Tool) Exists(ID, Rule) (bool, error) { return false, errors.ErrUnsupported }

// Chains asks nobody here: only Linux has iptables.
func (t Tool) Chains(string) ([]string, error) { return nil, errors.ErrUnsupported }
