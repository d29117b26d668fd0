// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/host/watch"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A source is where Services come from.
type source interface {
	Run(context.Context) error // feeds the tracker, until the context ends
}

// A faulty source can say what is wrong with what it reads, as lines.
type faulty interface {
	Faults() []watch.Fault
}

// A distant source can say why nothing comes from it now; empty: it answers.
type distant interface {
	Fault() string
}

// openSource opens the source that the settings name.
func (h *host) openSource(s config.Source) error {
	if s.Files == nil {
		return h.openCluster(*s.Kubernetes)
	}
	h.source = watch.Files(s.Files.Path, h.tracker, watch.FileSettings{Report: noticed(h.reports)})
	h.from = "files " + s.Files.Path
	return nil
}

// openCluster opens a cluster's API server, to read of Services and to write events.
func (h *host) openCluster(k config.Kubernetes) error {
	client, err := watch.Connect(watch.Connection{
		Kubeconfig: k.Kubeconfig,
		QPS:        h.settings.ClientConnection.QPS,
		Burst:      h.settings.ClientConnection.Burst,
		UserAgent:  "pointsman/" + wire.Build(),
		Observe:    func(r watch.Request) { h.servers.Requested(r.Method, r.Host, r.Code, r.Took) },
	})
	if err != nil {
		return err
	}
	node, notice := nodeName(h.settings, h.machine), noticed(h.reports)
	h.source = watch.Kubernetes(client, h.tracker, watch.KubeSettings{NodeName: node, Eligible: h.servers.SetEligible, Report: notice})
	h.written = watch.NewEvents(client, node, notice)
	h.from = "kubernetes"
	return nil
}

// fault returns why no changes are heard of now; empty: they are.
func (h *host) fault() string {
	if d, ok := h.source.(distant); ok {
		return d.Fault()
	}
	return ""
}

// announce is the sink that writes events to the cluster: what is wrong, and when
// this node begins to be served.
func (h *host) announce(e report.Event) {
	if h.written == nil || !e.Warning && e.Reason != report.HostStarting && e.Reason != report.DataplaneActive {
		return
	}
	object := e.Object
	if e.Reason == report.ConfigRefused {
		object = "" // a file of this node
	}
	h.written.Write(track.Notice{Warning: e.Warning, Reason: e.Reason, Object: object, Message: e.Message})
}
