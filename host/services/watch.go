// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// dropReasons describes the reasons for which dataplanes drop packets.
var dropReasons = map[string]string{
	sdk.DropSourceRange:          "the caller is in none of its source ranges",
	sdk.DropLocalWithoutEndpoint: "its traffic policy is Local, and no endpoint is on this node",
	sdk.DropNoEndpoint:           "it has no endpoint that may be used",
	sdk.DropForeignPort:          "no Service has this port of the address",
}

// Watch calls tell for packets that the serving dataplane traces, with what happens to each, until ctx ends: packets
// like the one in asked or, if asked is nil, all packets that rules drop or reject. The plugin traces them, because the host
// has no NET_ADMIN.
func (q Queries) Watch(ctx context.Context, asked *admin.Question, tell func(admin.Watched) error) error {
	own, err := addressesNow()
	if err != nil {
		return err
	}
	main := q.Serving()
	remote, err := main.Process()
	if err != nil {
		return err
	}
	var like sdk.Packet
	if asked != nil {
		if asked.Pod != "" {
			return errPodName(*asked)
		}
		x := explanation{Explanation: admin.Explanation{Question: *asked}, node: q.Tracker.Node(), own: own}
		like = x.packet(q.Tracker.Match(asked.To, protocols[asked.Protocol], own))
	}
	err = remote.Watch(ctx, like, func(p sdk.WatchedPacket) error {
		w := admin.Watched{Time: time.Now(), Verdict: p.Verdict.String(), From: p.From.String(), To: p.To.String(), At: p.At, Reason: p.Reason, Why: dropReasons[p.Reason]}
		if p.Protocol == 0 { // ports are not known
			w.From, w.To = p.From.Addr().String(), p.To.Addr().String()
			return tell(w)
		}
		w.Protocol = p.Protocol.String()
		if m := q.Tracker.Match(p.To, p.Protocol, own); m.Why == "" {
			w.Service = m.Service.Name.String()
		}
		return tell(w)
	})
	if errors.Is(err, wire.ErrUnsupported) {
		return &admin.Error{Code: http.StatusConflict, What: "mode " + main.Name() + " cannot watch packets", Why: "its plugin does not trace them",
			Try: "pointsman explain SRC DST:PORT without --watch"}
	}
	return err
}
