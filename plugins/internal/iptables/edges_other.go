// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package iptables

import (
	"context"
	"errors"
	"io"

	"github.com/pointsman/pointsman/sdk"
)

// What follows is what only Linux has.

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

func (t Tool) lacks(...string) []string { return nil }

// eachChain reads a table chain by chain.
func (t Tool) eachChain(context.Context, string, Tables) error { return errors.ErrUnsupported }

// KubeTables are those tables in which chains stand that begin with KUBE-.
func (t Tool) KubeTables(context.Context) ([]string, error) { return nil, errors.ErrUnsupported }

// Outline is Save of one table, without the rules that need not be known.
func (t Tool) Outline(context.Context, string, func(ID) bool) (Tables, error) {
	return nil, errors.ErrUnsupported
}

// SaveIf is Save of the tables in which stands a chain that is named.
func (t Tool) SaveIf(context.Context, func(ID) bool, ...string) (Tables, error) {
	return nil, errors.ErrUnsupported
}

// Writers are the programs that write to nf_tables.
type Writers struct{}

// ListenToWriters begins to listen.
func ListenToWriters() (*Writers, error) { return nil, errors.ErrUnsupported }

// Close ends it.
func (*Writers) Close() error { return nil }

// Others adds to names the other programs that have written.
func (*Writers) Others(names []string) []string { return names }

// LegacyDrops are the chains in legacy's table filter that have the policy to drop.
func LegacyDrops(sdk.Family, string) ([]string, error) { return nil, errors.ErrUnsupported }

// TableSize asks the kernel how big legacy's table is.
func TableSize(sdk.Family, string) (Size, error) { return Size{}, errors.ErrUnsupported }

// Generation is that of three tables at most.
func (t Tool) Generation(...string) (Generation, error) { return Generation{}, errors.ErrUnsupported }

// Foreign returns another Generation when another process has changed tables.
func (t Tool) Foreign(...string) (Generation, error) { return Generation{}, errors.ErrUnsupported }

// Uses returns how many rules each chain of nft's tables has and how many lead to it.
func (t Tool) Uses(context.Context) (map[ID]uint32, error) { return nil, errors.ErrUnsupported }

// Counted returns how many packets came to the rules of some chains.
func (t Tool) Counted(context.Context, map[string]string) (map[string]uint64, error) {
	return nil, errors.ErrUnsupported
}

// SweepKubeProxy removes, or only names, the tables of kube-proxy's nftables mode.
func SweepKubeProxy(bool) ([]string, error) { return nil, errors.ErrUnsupported }

// OpenAccounts makes the accounts that are not there yet.
func OpenAccounts(...string) error { return errors.ErrUnsupported }

// Account is how many packets were counted by the account called name.
func Account(string) (packets uint64, ok bool) { return 0, false }

// CloseAccount removes the account called name.
func CloseAccount(string) error { return errors.ErrUnsupported }
