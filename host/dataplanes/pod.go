// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/sdk"
)

// A Pod is one that an EndpointSlice names as what is behind an endpoint.
type Pod struct {
	Name  string
	Node  string // empty: not given
	Addrs []netip.Addr
}

// pod looks up the pod that a question names, if it names one, and puts its address and where it is
// into the question. It says what it found.
func (set *Set) pod(ctx context.Context, q *admin.Question, own func(netip.Addr) bool) (string, error) {
	if q.Pod == "" {
		return "", nil
	}
	namespace, name, _ := strings.Cut(q.Pod, "/")
	pods, err := set.Pods(ctx, namespace)
	if err != nil {
		return "", fmt.Errorf("look up the pod %s: %w", q.Pod, err)
	}
	return named(q, name, pods, func(node string) bool { return node == set.NodeName }, own)
}

// named fills in the question by the pods of its pod's namespace. Pure.
func named(q *admin.Question, name string, pods []Pod, here func(node string) bool, own func(netip.Addr) bool) (string, error) {
	known, family := false, sdk.FamilyOf(q.To.Addr())
	for _, p := range pods {
		if p.Name != name {
			continue
		}
		known = true
		i := slices.IndexFunc(p.Addrs, func(a netip.Addr) bool { return sdk.FamilyOf(a) == family })
		if i < 0 {
			continue
		}
		q.From = p.Addrs[i]
		text, on := fmt.Sprintf("%s has the address %s", q.Pod, q.From), "it is not said on which node"
		switch {
		case own(q.From):
			q.Caller, on = admin.CallerNode, "which is one of this node's own"
		case p.Node == "":
		case here(p.Node):
			q.Caller, on = admin.CallerPod, "on this node"
		default:
			q.Caller, on = admin.CallerOutside, "on node "+p.Node
		}
		return text + ", " + on, nil
	}
	e := &admin.Error{Code: http.StatusNotFound, Try: fmt.Sprintf("pointsman explain ADDRESS %s, with the pod's own address", q.To)}
	if known {
		e.What, e.Why = fmt.Sprintf("pod %s has no %s address", q.Pod, family), "no endpoint of a Service has one of it"
		return "", e
	}
	e.What = "no pod " + q.Pod + " is behind an endpoint of a Service, by which alone pods are known here"
	return "", e
}
