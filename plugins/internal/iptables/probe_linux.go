// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"

	goiptables "github.com/coreos/go-iptables/iptables"

	"github.com/pointsman/pointsman/sdk"
)

// Single questions are asked by go-iptables: which version is this program, is
// that rule there? It starts a program for each, which waits for the lock for a
// second at most. Whatever writes goes by a Script instead, and whatever reads whole
// tables by Save: at once, cancelled with its context, and the former under the
// writer's lock.

// errNoProgram says that PATH has no such program.
var errNoProgram = errors.New("no such program")

// ask is what asks the program called prefix.
func ask(family sdk.Family, prefix string) (*goiptables.IPTables, error) {
	protocol := goiptables.ProtocolIPv4
	if family == sdk.IPv6 {
		protocol = goiptables.ProtocolIPv6
	}
	asked, err := goiptables.New(goiptables.IPFamily(protocol), goiptables.Path(prefix), goiptables.Timeout(1))
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return nil, errNoProgram
	}
	return asked, err
}

// versionOf asks the program called prefix which version it is.
func versionOf(family sdk.Family, prefix string) (release, error) {
	asked, err := ask(family, prefix)
	if err != nil {
		return release{}, err
	}
	major, minor, patch := asked.GetIptablesVersion()
	return release{major, minor, patch}, nil
}

// Exists reports whether chain id has rule, as the kernel compares them.
func (t Tool) Exists(id ID, rule Rule) (bool, error) {
	words, err := rule.Fields()
	if err != nil {
		return false, err
	}
	asked, err := ask(t.Family, t.Prefix)
	if err != nil {
		return false, err
	}
	exists, err := asked.Exists(id.Table, id.Chain, words...)
	if gone := new(goiptables.Error); errors.As(err, &gone) && gone.IsNotExist() {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask for %q in %s: %w", rule, id, err)
	}
	return exists, nil
}
