// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package iptables

import (
	"context"
	"errors"
	"io"

	"github.com/pointsman/pointsman/sdk"
)

// Stubs for everything that only Linux has.

func (t Tool) runInto(context.Context, io.Writer, string, []byte, ...string) (string, error) {
	return "", errors.ErrUnsupported
}

func lacksNFT(sdk.Family) bool { return true }

type ruleCount struct{ rules, kube int }

func countNFT(context.Context, sdk.Family) (ruleCount, error) {
	return ruleCount{}, errors.ErrUnsupported
}

func countLegacy(context.Context, sdk.Family) (ruleCount, error) {
	return ruleCount{}, errors.ErrUnsupported
}

// Reach reports why this process cannot get at the tables of t.
func (t Tool) Reach() error { return errors.ErrUnsupported }

func (t Tool) check(ID, []string) (bool, error) { return false, errors.ErrUnsupported }

func (t Tool) chains(context.Context, string) ([]string, error) { return nil, errors.ErrUnsupported }

var matches []string

func (t Tool) missingMatches(...string) []string { return nil }

// eachChain reads a table chain by chain.
func (t Tool) eachChain(context.Context, string, Tables) error { return errors.ErrUnsupported }

// KubeTables returns the tables with KUBE- chains.
func (t Tool) KubeTables(context.Context) ([]string, error) { return nil, errors.ErrUnsupported }

// Outline returns the chains of one table without the rules that are not needed.
func (t Tool) Outline(context.Context, string, func(ID) bool) (Tables, error) {
	return nil, errors.ErrUnsupported
}

// SaveIf is Save for the tables that have a reported chain.
func (t Tool) SaveIf(context.Context, func(ID) bool, ...string) (Tables, error) {
	return nil, errors.ErrUnsupported
}

// Writers reports the names of programs that write to nf_tables.
type Writers struct{}

// ListenToWriters opens a listener.
func ListenToWriters() (*Writers, error) { return nil, errors.ErrUnsupported }

// Close closes the listener.
func (*Writers) Close() error { return nil }

// Others adds to names the other programs that have written.
func (*Writers) Others(names []string) []string { return names }

// LegacyDrops returns the chains of legacy's filter table with policy DROP.
func LegacyDrops(sdk.Family, string) ([]string, error) { return nil, errors.ErrUnsupported }

// TableSize returns the size of a legacy table.
func TableSize(sdk.Family, string) (Size, error) { return Size{}, errors.ErrUnsupported }

// Generation returns the generation of tables.
func (t Tool) Generation(...string) (Generation, error) { return Generation{}, errors.ErrUnsupported }

// Foreign returns a Generation that differs if another process has changed tables.
func (t Tool) Foreign(...string) (Generation, error) { return Generation{}, errors.ErrUnsupported }

// Uses returns the use count of each chain of nf_tables.
func (t Tool) Uses(context.Context) (map[ID]uint32, error) { return nil, errors.ErrUnsupported }

// Counted returns how many packets reached the rules of some chains.
func (t Tool) Counted(context.Context, map[string]string) (map[string]uint64, error) {
	return nil, errors.ErrUnsupported
}

// SweepKubeProxy removes the tables of kube-proxy's nftables mode.
func SweepKubeProxy(bool) ([]string, error) { return nil, errors.ErrUnsupported }

// OpenAccounts creates accounts.
func OpenAccounts(...string) error { return errors.ErrUnsupported }

// Account returns the number of packets counted in an account.
func Account(string) (packets uint64, ok bool) { return 0, false }

// CloseAccount removes an account.
func CloseAccount(string) error { return errors.ErrUnsupported }
