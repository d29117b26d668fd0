// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/doctor"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/watch"
	"github.com/pointsman/pointsman/sdk/statefile"
	"github.com/pointsman/pointsman/sdk/wire"
)

// folders looks at where the host notes what outlives it.
func (x examination) folders() []admin.Finding {
	source := x.settings.Source.Kubernetes
	inPod := source != nil && source.Kubeconfig == "" && os.Getenv("KUBERNETES_SERVICE_HOST") != ""
	state := doctor.Folder{Check: "stateDir", Path: x.settings.StateDir, InPod: inPod, Guarded: statefile.Guarded}
	data := doctor.Folder{Check: "dataDir", Path: x.settings.DataDir, InPod: inPod, Guarded: statefile.Guarded, Boots: true}
	if x.settings.Mode != config.Auto { // nothing is written to it
		if _, err := os.Stat(data.Path); errors.Is(err, fs.ErrNotExist) {
			return append(state.Examine(), found(data.Check, admin.OK, data.Path+" is not there yet", "")...)
		}
		data.Boots = false
	}
	return slices.Concat(state.Examine(), data.Examine())
}

// server asks the API server, where Services come from one, whether it answers and what it keeps
// from this host.
func (x examination) server(ctx context.Context) []admin.Finding {
	const check = "API server"
	source := x.settings.Source.Kubernetes
	if source == nil {
		return nil
	}
	client, err := watch.Connect(watch.Connection{
		Kubeconfig: source.Kubeconfig, QPS: x.settings.ClientConnection.QPS, Burst: x.settings.ClientConnection.Burst,
		UserAgent: "pointsman/" + wire.Build(), Observe: func(watch.Request) {},
	})
	if err != nil && source.Kubeconfig == "" {
		return found(check, admin.Unknown, oneLineOf(err), "kubectl exec in the host's pod: pointsman doctor")
	}
	here, machineErr := thisMachine()
	if err = errors.Join(err, machineErr); err != nil {
		return found(check, admin.Fail, oneLineOf(err), "")
	}
	node := nodeName(x.settings, here)
	denied, err := client.Denied(ctx, node)
	if err != nil {
		return found(check, admin.Fail, oneLineOf(err), "see that the server of the kubeconfig is reached from this node, and that its credentials hold")
	}
	return permitted(node, denied)
}

// permitted says what an API server keeps from the host of a node. Pure.
func permitted(node string, denied []watch.Permission) (all []admin.Finding) {
	const check = "API server"
	for _, group := range []struct {
		spared bool
		result admin.Result
		then   string
	}{
		{false, admin.Fail, "without that no change of Services reaches this node"},
		{true, admin.Warn, "the host goes on without"},
	} {
		var lacks []string
		for _, p := range denied {
			if p.Spared == group.spared {
				lacks = append(lacks, p.String())
			}
		}
		if len(lacks) > 0 {
			all = append(all, found(check, group.result, fmt.Sprintf("it answers, and this host may not %s (as node %s): %s", phrase.List(lacks), node, group.then),
				"kubectl apply -f "+watch.RoleFile+", which grants it, and see that its ClusterRoleBinding names the host's account")...)
		}
	}
	if len(all) == 0 {
		return found(check, admin.OK, "it answers, and grants what the host asks", "")
	}
	return all
}
