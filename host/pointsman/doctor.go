// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/doctor"
	"github.com/pointsman/pointsman/host/health"
	"github.com/pointsman/pointsman/host/watch"
)

func doctorVerb() *cobra.Command {
	return printing(verb("doctor", "Check what Services on this node depend on, with or without a running host", cobra.NoArgs), func(c *cobra.Command, _ []string) (doctor.Diagnosis, error) {
		d := doctor.NewDiagnosis(examine(c.Context(), c))
		return d, map[doctor.Result]error{doctor.Fail: errRefused, doctor.Warn: errDegraded}[d.Result]
	}, writeDiagnosis)
}

func writeDiagnosis(w io.Writer, d doctor.Diagnosis) {
	for _, f := range d.Checks {
		fmt.Fprintf(w, "%s\t%s\t%s\n", paint(w, f.Result, string(f.Result)), f.Check, f.Why)
		if f.Try != "" {
			fmt.Fprintf(w, "%s\t\t  try: %s\n", paint(w, "", ""), f.Try)
		}
	}
	fmt.Fprintf(w, "%s\tin all\t\n", paint(w, d.Result, string(d.Result)))
}

// examine runs all checks. It uses the settings of the running host, or those of the file if no host answers.
func examine(ctx context.Context, c *cobra.Command) (all []doctor.Finding) {
	host := client(c)
	status, unreachable := host.Status(ctx)
	settings, err := current(c)
	all = doctor.New("host", doctor.OK, "", "process %d, mode %s", status.Host.PID, status.Mode)
	if unreachable != nil {
		all = doctor.New("host", doctor.Fail, "systemctl start pointsman; pointsman plugin check MODE says what the kernel lacks", "%s", oneLineOf(unreachable))
	}
	for _, w := range status.Warnings { // including kernel features that a dataplane lacks
		result := doctor.Warn
		if w.Code == health.NoNode { // with a wrong name no endpoint counts as local
			result = doctor.Fail
		}
		all = append(all, doctor.New("host", result, w.Try, "%s: %s", w.Code, w.Text)...)
	}
	for _, note := range status.Dataplane.Notes { // such as a FORWARD chain that drops
		all = append(all, doctor.New("dataplane", doctor.Warn, "", "%s", note)...)
	}
	if err != nil {
		return append(all, doctor.New("config", doctor.Fail, "pointsman config validate", "%s", oneLineOf(err))...)
	}
	node := doctor.Node{Proc: "/proc", Mode: cmp.Or(status.Mode, settings.Mode), StateDir: settings.StateDir}
	if list, err := host.Services(ctx); err == nil {
		node.Services = list.Items
	}
	return slices.Concat(all, server(ctx, settings), kubeProxyBeside(), node.Examine())
}

// mostSkew is more than a slow response and the Date header, which has whole seconds, account for.
const mostSkew = 10 * time.Second

// server checks the host's permissions at the API server, and compares its clock with this node's.
func server(ctx context.Context, settings *config.Host) []doctor.Finding {
	const check = "API server"
	source := settings.Source.Kubernetes
	if source == nil {
		return nil
	}
	var skew time.Duration
	client, err := watch.Connect(watch.Connection{
		Kubeconfig: source.Kubeconfig, QPS: settings.ClientConnection.QPS, Burst: settings.ClientConnection.Burst,
		Observe: func(r watch.Request) {
			if !r.Date.IsZero() {
				skew = time.Since(r.Date).Abs().Round(time.Second)
			}
		},
	})
	if err != nil && source.Kubeconfig == "" {
		return doctor.New(check, doctor.Unknown, "kubectl exec in the host's pod: pointsman doctor", "%s", oneLineOf(err))
	}
	var denied []watch.Permission
	if err == nil {
		here, _ := thisMachine()
		denied, err = client.Denied(ctx, nodeName(settings, here))
	}
	if err != nil {
		return doctor.New(check, doctor.Fail, "check whether this node reaches the server of the kubeconfig, and whether its credentials are valid", "%s", oneLineOf(err))
	}
	all := doctor.New(check, doctor.OK, "", "it answers")
	for _, p := range denied {
		result, then := doctor.Fail, "no change of Services reaches this node"
		if p.Optional {
			result, then = doctor.Warn, "the host works without it"
		}
		all = append(all, doctor.New(check, result, "kubectl apply -f "+watch.RoleFile, "it does not allow this host to %s: %s", p, then)...)
	}
	if skew > mostSkew {
		return append(all, doctor.New("clock", doctor.Warn, "timedatectl", "this node and the API server differ by %s: certificates and tokens may be refused", skew)...)
	}
	return append(all, doctor.New("clock", doctor.OK, "", "this node and the API server agree")...)
}

// kubeProxyBeside finds a process of kube-proxy in this network namespace.
func kubeProxyBeside() []doctor.Finding {
	const check = "kube-proxy"
	switch p, err := findKubeProxy(); {
	case err != nil:
		return doctor.New(check, doctor.Unknown, "", "%s", oneLineOf(err))
	case p != nil:
		return doctor.New(check, doctor.Warn, "pointsman plan --from-kube-proxy; only one of the two may serve this node", "it runs: process %d", p.pid)
	}
	return doctor.New(check, doctor.OK, "", "it does not run in this network namespace")
}

// oneLineOf returns the text of an error for a table.
func oneLineOf(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
