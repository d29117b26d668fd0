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
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

// A release is a version of iptables: 1.8.9.
type release [3]int

// oldest is the oldest usable release. Before it the backends could not be told apart, and a restore of one
// table disturbed others.
var oldest = release{1, 8, 0}

// String reads "1.8.9".
func (r release) String() string { return fmt.Sprintf("%d.%d.%d", r[0], r[1], r[2]) }

func (r release) before(s release) bool { return slices.Compare(r[:], s[:]) < 0 }

// Open returns the tool of family for backend. It only asks the program for its version. If a program is
// missing or too old, the error is a *sdk.Refusal.
func Open(ctx context.Context, family sdk.Family, backend Backend) (Tool, error) {
	if backend == NFT && lacksNFT(family) {
		return Tool{}, &sdk.Refusal{Field: "options.backend", Why: fmt.Sprintf("this kernel has no nft tables for %s", family), Try: "the legacy backend"}
	}
	var refusal error
	for _, prefix := range []string{program(family) + "-" + string(backend), program(family)} {
		t := Tool{Family: family, Backend: backend, Prefix: prefix}
		found, writesTo, err := t.version(ctx)
		switch {
		case ctx.Err() != nil:
			return Tool{}, ctx.Err()
		case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			refusal = refuse(fmt.Sprintf("%s does not say its version: %v", prefix, err))
			continue
		case found.before(oldest):
			refusal = refuse(fmt.Sprintf("%s is version %s, and %s or later is needed", prefix, found, oldest))
			continue
		case writesTo == backend:
			t.Version = found.String()
			return t, nil
		}
	}
	if refusal == nil {
		refusal = refuse(fmt.Sprintf("there is no %s-%s in PATH", program(family), backend))
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
		found, err := Look(ctx, sdk.IPv4)
		if err != nil {
			return nil, err
		}
		use = found.Choose()
		if found.Mixed() {
			note(fmt.Sprintf("at startup both backends of iptables had rules of Kubernetes (%d in nft, %d in legacy); rules are written to %s, but the kernel evaluates both",
				found.Kube[NFT], found.Kube[Legacy], use))
		}
	}
	var tools []Tool
	var errs []error
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		t, err := Open(ctx, family, use)
		if err == nil {
			err = t.Reach()
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

var versionLike = regexp.MustCompile(`v(\d+)\.(\d+)\.(\d+)`)

// version asks the program for its release and the backend that it writes to: "iptables v1.8.9 (nf_tables)".
func (t Tool) version(ctx context.Context) (r release, of Backend, err error) {
	stdout, stderr, err := t.run(ctx, t.Prefix, nil, "--version")
	if err != nil {
		return r, "", withStderr(err, stderr)
	}
	numbers := versionLike.FindStringSubmatch(string(stdout))
	if numbers == nil {
		return r, "", fmt.Errorf("no version in %q", firstLine(string(stdout)))
	}
	for i := range r {
		if r[i], err = strconv.Atoi(numbers[i+1]); err != nil {
			return r, "", err
		}
	}
	if strings.Contains(string(stdout), "(nf_tables)") {
		return r, NFT, nil
	}
	return r, Legacy, nil
}

// program returns the prefix of the names of the family's programs.
func program(f sdk.Family) string {
	if f == sdk.IPv6 {
		return "ip6tables"
	}
	return "iptables"
}

// Use describes how the node uses the two backends.
type Use struct {
	Rules map[Backend]int // approximate number of rules
	Kube  map[Backend]int // how many of these are in KUBE- chains
	Has   map[Backend]bool

	Plain Backend // the backend of the program "iptables"; empty: not installed
}

// Mixed reports whether both backends have rules of Kubernetes.
func (u Use) Mixed() bool { return u.Kube[NFT] > 0 && u.Kube[Legacy] > 0 }

// Choose returns the backend that the node already uses: the one with Kubernetes' rules, otherwise the one with
// more rules, otherwise that of the program "iptables", which other software on the node runs, otherwise nft.
func (u Use) Choose() Backend {
	switch {
	case u.Has[Legacy] && !u.Has[NFT]:
		return Legacy
	case u.Kube[Legacy] != u.Kube[NFT]:
		return most(u.Kube)
	case u.Rules[Legacy] != u.Rules[NFT]:
		return most(u.Rules)
	case u.Plain == Legacy && u.Has[Legacy]:
		return Legacy
	}
	return NFT
}

func most(n map[Backend]int) Backend {
	if n[Legacy] > n[NFT] {
		return Legacy
	}
	return NFT
}

// Look counts the rules in each backend. It changes nothing, and takes at most a second where kube-proxy left
// rules for 10,000 Services.
func Look(ctx context.Context, family sdk.Family) (Use, error) {
	u := Use{Rules: make(map[Backend]int), Kube: make(map[Backend]int), Has: make(map[Backend]bool)}
	for _, backend := range []Backend{NFT, Legacy} {
		tool, err := Open(ctx, family, backend)
		if err != nil {
			continue
		}
		u.Has[backend] = true
		if rules, kube, err := tool.count(ctx); err == nil { // on an error the kernel lacks the backend
			u.Rules[backend], u.Kube[backend] = rules, kube
		}
	}
	if _, plain, err := (Tool{Family: family, Prefix: program(family)}).version(ctx); err == nil {
		u.Plain = plain
	}
	return u, ctx.Err()
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
