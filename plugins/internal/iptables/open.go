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

// oldest is the oldest release that is enough: before it there was no telling the
// backends apart, and restores of one table disturbed others.
var oldest = release{1, 8, 0}

// String reads "1.8.9".
func (r release) String() string { return fmt.Sprintf("%d.%d.%d", r[0], r[1], r[2]) }

func (r release) before(s release) bool { return slices.Compare(r[:], s[:]) < 0 }

// Open is the tool of family for backend. It only asks the program for its
// version. A program that is missing or too old is a *sdk.Refusal.
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

// CheckBackend refuses what OpenAll does not take; empty becomes "auto".
func CheckBackend(backend *string) error {
	*backend = cmp.Or(*backend, "auto")
	if !slices.Contains([]string{"auto", string(NFT), string(Legacy)}, *backend) {
		return &sdk.Refusal{Field: "options.backend", Why: fmt.Sprintf("%q is none of auto, nft, legacy", *backend)}
	}
	return nil
}

// OpenAll are the tools of each IP family that may be used here, for one backend: the one that
// is named, or for "auto" the one that the node uses already. An error: there is none. That
// Kubernetes' rules stand in both goes to note.
func OpenAll(ctx context.Context, backend string, note func(string)) ([]Tool, error) {
	use := Backend(backend)
	if backend == "auto" {
		found, err := Look(ctx, sdk.IPv4)
		if err != nil {
			return nil, err
		}
		use = found.Choose()
		if found.Mixed() {
			note(fmt.Sprintf("at the start rules of Kubernetes stood in both backends of iptables (%d in nft, %d in legacy); %s is written to, and the kernel goes by both",
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
			if options := t.lacks(matches...); len(options) > 0 {
				note(fmt.Sprintf("this kernel lacks %s for %s, so it refuses rules that need them; build them in, or load the modules", strings.Join(options, " and "), family))
			}
		}
		errs = append(errs, err)
	}
	if len(tools) == 0 {
		return nil, errors.Join(errs...)
	}
	return tools, nil
}

// ToolsInUse are the tools of the backends in which family may have rules in this network
// namespace. Without its programs a backend has none of ours.
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

// version asks the program for its release, and for the backend that it writes to, which it names
// beside that: "iptables v1.8.9 (nf_tables)".
func (t Tool) version(ctx context.Context) (r release, of Backend, err error) {
	stdout, stderr, err := t.run(ctx, t.Prefix, nil, "--version")
	if err != nil {
		return r, "", said(err, stderr)
	}
	numbers := versionLike.FindStringSubmatch(string(stdout))
	if numbers == nil {
		return r, "", fmt.Errorf("there is none in %q", firstLine(string(stdout)))
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

// program is the name that the family's programs begin with.
func program(f sdk.Family) string {
	if f == sdk.IPv6 {
		return "ip6tables"
	}
	return "iptables"
}

// Use is what a node's tables show of the two backends.
type Use struct {
	Rules map[Backend]int // about how many rules each has
	Kube  map[Backend]int // how much of that stands in chains that begin with KUBE-
	Has   map[Backend]bool

	Plain Backend // the one that the program "iptables" writes to; empty: there is none
}

// Mixed reports whether Kubernetes' rules stand in both.
func (u Use) Mixed() bool { return u.Kube[NFT] > 0 && u.Kube[Legacy] > 0 }

// Choose is the backend that the node uses already: the one where Kubernetes'
// rules are, else the one with more rules, else the one that other software on the node
// writes to when it runs "iptables", else nft.
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

// Look counts the rules in each backend, by asking the kernel: the programs only
// say whether they are there. It changes nothing, and takes no longer than a second
// where a kube-proxy left rules for 10,000 Services.
func Look(ctx context.Context, family sdk.Family) (Use, error) {
	u := Use{Rules: make(map[Backend]int), Kube: make(map[Backend]int), Has: make(map[Backend]bool)}
	for backend, count := range map[Backend]func(context.Context, sdk.Family) (ruleCount, error){Legacy: countLegacy, NFT: countNFT} {
		if _, err := Open(ctx, family, backend); err != nil {
			continue
		}
		u.Has[backend] = true
		if c, err := count(ctx, family); err == nil { // else this kernel lacks the backend
			u.Rules[backend], u.Kube[backend] = c.rules, c.kube
		}
	}
	if _, plain, err := (Tool{Family: family, Prefix: program(family)}).version(ctx); err == nil {
		u.Plain = plain
	}
	return u, ctx.Err()
}

// legacyTables are the tables that legacy iptables has in this network namespace.
func legacyTables(family sdk.Family) []string {
	path := "/proc/thread-self/net/ip_tables_names"
	if family == sdk.IPv6 {
		path = "/proc/thread-self/net/ip6_tables_names"
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil // the module is not loaded: there are none
	}
	return strings.Fields(string(data))
}

// InUse reports whether backend may have rules of family in this network
// namespace. Legacy's tables are made by asking for them, so this asks none.
func InUse(family sdk.Family, backend Backend) bool {
	if backend == NFT {
		return !lacksNFT(family)
	}
	return len(legacyTables(family)) > 0
}
