// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

// oldest is the oldest usable release. Before it the programs did not tell their backend, and a restore of one
// table disturbed others.
const oldest = "1.8.0"

// Open returns the tool of family for backend. It only asks the program for its version. If a program is
// missing or too old, the error is a *sdk.Refusal.
func Open(ctx context.Context, family sdk.Family, backend Backend) (Tool, error) {
	if backend == NFT && lacksNFT(family) {
		return Tool{}, &sdk.Refusal{Field: "options.backend", Why: fmt.Sprintf("this kernel has no nft tables for %s", family), Try: "the legacy backend"}
	}
	refusal := refuse(fmt.Sprintf("there is no %s-%s in PATH", program(family), backend))
	for _, prefix := range []string{program(family) + "-" + string(backend), program(family)} {
		t := Tool{Family: family, Backend: backend, Prefix: prefix}
		writesTo, err := t.version(ctx)
		switch {
		case ctx.Err() != nil:
			return Tool{}, ctx.Err()
		case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		case err != nil:
			refusal = refuse(fmt.Sprintf("%s: %v", prefix, err))
		case writesTo == backend:
			return t, nil
		}
	}
	return Tool{}, refusal
}

// CheckBackend returns a refusal for a backend that OpenAll does not accept. It replaces "" by "auto".
func CheckBackend(backend *string) error {
	*backend = cmp.Or(*backend, "auto")
	if !slices.Contains([]string{"auto", string(NFT), string(Legacy)}, *backend) {
		return &sdk.Refusal{Field: "options.backend", Why: fmt.Sprintf("%q is none of auto, nft, legacy", *backend)}
	}
	return nil
}

// OpenAll returns the tools of all IP families that can be used, for one backend: the named one, or for "auto"
// the one that the node already uses. It returns an error if there is no tool. It calls note if both backends
// have rules of Kubernetes, or if the kernel lacks matches.
func OpenAll(ctx context.Context, backend string, note func(string)) ([]Tool, error) {
	use := Backend(backend)
	if backend == "auto" {
		chosen, mixed, err := look(ctx, sdk.IPv4)
		if err != nil {
			return nil, err
		}
		if use = chosen; mixed != "" {
			note(mixed)
		}
	}
	var tools []Tool
	var errs []error
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		t, err := Open(ctx, family, use)
		if err == nil {
			_, err = t.Generation("nat", "filter") // can this process access the tables?
		}
		if err == nil {
			tools = append(tools, t)
			if options := t.missingMatches(matches...); len(options) > 0 {
				note(fmt.Sprintf("this kernel lacks %s for %s and refuses rules that need them; try: build them in or load the modules", strings.Join(options, " and "), family))
			}
		}
		errs = append(errs, err)
	}
	if len(tools) == 0 {
		return nil, errors.Join(errs...)
	}
	return tools, nil
}

// ToolsInUse returns the tools of the backends in which family may have rules in this network namespace. A
// backend without programs has none of our rules.
func ToolsInUse(ctx context.Context, family sdk.Family) (tools []Tool) {
	for _, backend := range []Backend{NFT, Legacy} {
		if !InUse(family, backend) {
			continue
		}
		if t, err := Open(ctx, family, backend); err == nil {
			tools = append(tools, t)
		}
	}
	return tools
}

func refuse(why string) error {
	return &sdk.Refusal{Field: "options.backend", Why: why, Try: fmt.Sprintf("install iptables %s or later", oldest)}
}

// version asks the program for the backend that it writes to: "iptables v1.8.9 (nf_tables)".
func (t Tool) version(ctx context.Context) (Backend, error) {
	stdout, stderr, err := t.run(ctx, t.Prefix, nil, "--version")
	switch text := string(stdout); {
	case err != nil:
		return "", withStderr(err, stderr)
	case strings.Contains(text, "(nf_tables)"):
		return NFT, nil
	case strings.Contains(text, "(legacy)"):
		return Legacy, nil
	default:
		return "", fmt.Errorf("its version is %q, and %s or later is needed", firstLine(text), oldest)
	}
}

// program returns the prefix of the names of the family's programs.
func program(f sdk.Family) string {
	if f == sdk.IPv6 {
		return "ip6tables"
	}
	return "iptables"
}

// A use describes how the node uses a backend.
type use struct {
	has         bool // its programs are installed
	rules, kube int  // approximate number of rules, and how many of these are in KUBE- chains
}

// choose returns the backend that the node already uses: the one with Kubernetes' rules, otherwise the one with
// more rules, otherwise that of the program "iptables", which other software on the node runs, otherwise nft.
func choose(nft, legacy use, plain Backend) Backend {
	switch {
	case !legacy.has:
		return NFT
	case !nft.has:
		return Legacy
	}
	most := cmp.Or(cmp.Compare(legacy.kube, nft.kube), cmp.Compare(legacy.rules, nft.rules))
	if most > 0 || most == 0 && plain == Legacy {
		return Legacy
	}
	return NFT
}

// look returns the backend that the node already uses, and a note if both have rules of Kubernetes. It changes
// nothing, and takes at most a second where kube-proxy left rules for 10,000 Services.
func look(ctx context.Context, family sdk.Family) (chosen Backend, note string, err error) {
	uses := make(map[Backend]use)
	for _, backend := range []Backend{NFT, Legacy} {
		if tool, err := Open(ctx, family, backend); err == nil {
			rules, kube, _ := tool.count(ctx) // on an error the kernel lacks the backend
			uses[backend] = use{true, rules, kube}
		}
	}
	plain, _ := Tool{Family: family, Prefix: program(family)}.version(ctx) // on an error it is not installed
	chosen = choose(uses[NFT], uses[Legacy], plain)
	if nft, legacy := uses[NFT].kube, uses[Legacy].kube; nft > 0 && legacy > 0 {
		note = fmt.Sprintf("at startup both backends of iptables had rules of Kubernetes (%d in nft, %d in legacy); rules are written to %s, but the kernel evaluates both", nft, legacy, chosen)
	}
	return chosen, note, ctx.Err()
}

// legacyTables returns the names of the legacy tables that exist in this network namespace.
func legacyTables(family sdk.Family) []string {
	path := "/proc/thread-self/net/ip_tables_names"
	if family == sdk.IPv6 {
		path = "/proc/thread-self/net/ip6_tables_names"
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil // the module is not loaded, so there are no tables
	}
	return strings.Fields(string(data))
}

// InUse reports whether backend may have rules of family in this network namespace. It does not query legacy
// tables, because that would create them.
func InUse(family sdk.Family, backend Backend) bool {
	if backend == NFT {
		return !lacksNFT(family)
	}
	return len(legacyTables(family)) > 0
}
