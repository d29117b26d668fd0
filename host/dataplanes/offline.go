// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/sdk"
)

// errNoTracer is that no plugin here can trace packets.
var errNoTracer = &admin.Error{
	What: "trace the packet", Why: "no plugin in pluginDirs can; those of iptables, nftables, ipvs and userspace can, whatever mode serves",
	Try: "install one of them, and see pointsman plugin list",
}

// ExplainOffline says what becomes of a packet by the kernel alone, without a host: which Service it
// is for, and what should become of it, is not known. A plugin's binary reads the kernel, that of the
// mode if it can, and else another: the answer is the same. It takes root.
func ExplainOffline(ctx context.Context, h *config.Host, q admin.Question) (admin.Explanation, error) {
	if q.Pod != "" {
		return admin.Explanation{}, &admin.Error{What: "without a host no pod is known by its name", Try: fmt.Sprintf("pointsman explain --offline ADDRESS %s, with the address of %s", q.To, q.Pod)}
	}
	x := explanation{Explanation: admin.Explanation{Question: q, Steps: []admin.Step{}, Endpoints: []admin.Share{}}}
	x.APIVersion, x.Kind = admin.APIVersion, "Explanation"
	own, err := addressesNow()
	if err != nil {
		return x.Explanation, err
	}
	x.own = own
	words, err := x.offlineWords()
	if err != nil {
		return x.Explanation, err
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	failed := []error{}
	for _, f := range tracers(h) {
		printed, err := verb(ctx, f.Path, h.Plugins[f.Name].SHA256, words...)
		traced, err := answer[*admin.Traced](printed, err)
		switch {
		case errors.Is(err, errNoAnswer): // it cannot, or is older
		case err != nil:
			failed = append(failed, err)
		default:
			x.step("host", "none is asked: which Service that is, and what should become of it, is not known")
			x.step("read by", f.Path)
			x.offline(traced)
			return x.Explanation, nil
		}
	}
	if len(failed) > 0 {
		return x.Explanation, errors.Join(failed...)
	}
	return x.Explanation, errNoTracer
}

// tracers are the binaries to ask, that of the mode first.
func tracers(h *config.Host) []supervise.Found {
	all := slices.DeleteFunc(Discover(h), func(f supervise.Found) bool { return f.Err != nil })
	if i := slices.IndexFunc(all, func(f supervise.Found) bool { return f.Name == h.Mode }); i > 0 {
		all[0], all[i] = all[i], all[0]
	}
	return all
}

// offlineWords are those by which a plugin's binary is asked about the packet.
func (x *explanation) offlineWords() ([]string, error) {
	origin, from := sdk.Elsewhere, x.From
	switch {
	case x.Caller == admin.CallerNode || x.Caller == admin.CallerAny && x.own(x.From):
		origin = sdk.OnNode
	case x.Caller == admin.CallerPod:
		origin = sdk.OnPod
	}
	if !from.IsValid() {
		var err error
		if from, err = leavesBy(x.To); err != nil {
			return nil, err
		}
	}
	x.step("caller", fmt.Sprintf("%s, %s", from, map[sdk.Origin]string{sdk.OnNode: "a process of this node", sdk.OnPod: "a pod of this node", sdk.Elsewhere: "not of this node itself"}[origin]))
	at := map[sdk.Origin]string{sdk.OnNode: "node", sdk.OnPod: "pod", sdk.Elsewhere: "outside"}[origin]
	return []string{"trace", "-o", "json", "--from", from.String(), "--to", x.To.String(), "--protocol", x.Protocol, "--origin", at}, nil
}

// leavesBy returns the address that the kernel gives to a process of this node that sends to addr. Nothing
// is sent.
func leavesBy(to netip.AddrPort) (netip.Addr, error) {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("this node has no address to send to %s from: %w; ask for node:ADDRESS", to.Addr(), err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

// offline takes the kernel's verdict for the packet's, where all ways have the same.
func (x *explanation) offline(t *admin.Traced) {
	x.Offline, x.Kernel, x.Verdict = true, t, admin.VerdictCannotTell
	if t.CannotTell != "" || len(t.Ways) == 0 {
		return
	}
	verdictOf := func(w admin.Way) string {
		if w.Verdict == sdk.Forward.String() && w.To == x.To.String() {
			return admin.VerdictPass
		}
		return w.Verdict
	}
	first := verdictOf(t.Ways[0])
	if slices.ContainsFunc(t.Ways, func(w admin.Way) bool { return verdictOf(w) != first }) {
		x.Remedies = append(x.Remedies, "it depends on chance: see the ways and their rules")
		return
	}
	x.Verdict = first
	if first != sdk.Forward.String() {
		if rule := x.stopped(); rule != "" {
			x.Remedies = append(x.Remedies, "this is what stops it: "+rule)
		}
		return
	}
	for _, w := range t.Ways {
		x.Endpoints = append(x.Endpoints, admin.Share{Address: w.To, Share: w.Share, Masquerade: w.Masquerade})
	}
}
