// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/dataplanes"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/host/watch"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

func planVerb() *cobra.Command {
	var from bool
	c := &cobra.Command{
		Use:   "plan --from-kube-proxy",
		Short: "Say what would change on this node with Pointsman in kube-proxy's place, and change nothing",
		Long: `Plan says what would change on this node with Pointsman in the place of the kube-proxy that
runs here, and the order of steps. It writes nothing. kube-proxy's settings are read from its own
config file, or from --config; Services only with --kubeconfig, and by nothing else.`,
		Args: noWords(),
	}
	c.Flags().BoolVar(&from, "from-kube-proxy", false, "from the kube-proxy that runs on this node")
	c.Flags().String("kubeconfig", "", "look at the Services of the cluster of this kubeconfig")
	c.Flags().String("mode", "", "the dataplane that is to serve (default kube-proxy's mode)")
	c.Flags().String("hostname-override", "", "this node's name in Kubernetes (default as kube-proxy has it)")
	return planning(c, func(c *cobra.Command, _ []string) (admin.MovePlan, admin.Outcome, error) {
		if !from {
			return admin.MovePlan{}, "", usageError{errors.New("from what? try: pointsman plan --from-kube-proxy")}
		}
		ctx, stop := untilInterrupt(c.Context())
		defer stop()
		p, err := planMove(ctx, c)
		return p, p.Outcome, err
	}, writeMovePlan)
}

// planMove finds out what would change.
func planMove(ctx context.Context, c *cobra.Command) (admin.MovePlan, error) {
	running, err := kubeProxies()
	if err != nil {
		return admin.MovePlan{}, err
	}
	var first *kubeProxy
	if len(running) > 0 {
		first = &running[0]
	}
	h, err := theirSettings(c, first)
	if err != nil {
		return admin.MovePlan{}, err
	}
	m := mover{settings: h, running: running, plan: admin.MovePlan{
		Meta: admin.Meta{APIVersion: admin.APIVersion, Kind: "MovePlan"},
		From: theirMode(h), To: h.Mode, Config: h.Path(), Settings: append([]string{}, phrase.Texts(h.Warnings())...), Differs: []string{},
	}}
	switch len(running) {
	case 0:
		m.note("no kube-proxy runs in this network namespace: what it has in the kernel may be older than %s", h.Path())
	case 1:
	default:
		m.note("%d processes of kube-proxy run in this network namespace: pids %s; the settings are of the first", len(running), processes(running))
	}
	if first != nil {
		m.plan.PID = first.pid
	}
	next := m.preflight(ctx)
	m.plan.Settings = append(m.plan.Settings, unusedOptions(m.plan.From, m.plan.To, h.Plugins[m.plan.From].Options)...)
	left := dataplanes.LeftOfKubeProxy(ctx, h, h.Mode)
	m.plan.Left, m.plan.Kept, m.plan.Notes = append([]string{}, left.Removable...), left.Kept, append(m.plan.Notes, left.Unknown...)
	if kubeconfig := c.Flags().Lookup("kubeconfig"); kubeconfig.Changed {
		m.services(ctx, kubeconfig.Value.String(), next)
	} else {
		m.note("Services were not looked at: that needs --kubeconfig FILE")
	}
	m.conclude()
	return m.plan, nil
}

// A mover puts together what would change.
type mover struct {
	settings *config.Host
	running  []kubeProxy
	plan     admin.MovePlan
}

func (m *mover) note(format string, args ...any) {
	m.plan.Notes = append(m.plan.Notes, fmt.Sprintf(format, args...))
}

func (m *mover) refuse(format string, args ...any) {
	m.plan.Refused = append(m.plan.Refused, fmt.Sprintf(format, args...))
}

// preflight asks the plugin of the mode whether this node can run it, and returns what it can.
func (m *mover) preflight(ctx context.Context) admin.Plugin {
	found := dataplanes.Discover(m.settings)
	var names []string
	for _, f := range found {
		names = append(names, f.Name)
		if f.Name != m.plan.To {
			continue
		}
		if _, err := os.Stat("/proc/self/net/ip_vs"); err != nil && f.Name == "ipvs" {
			m.refuse("the kernel has not loaded IPVS, and to ask %s would load it; try: modprobe ip_vs", f.Name)
			return admin.Plugin{}
		}
		settings := m.settings.Plugins[f.Name]
		check, err := dataplanes.Check(ctx, f, settings)
		switch {
		case err != nil && check.Why == "":
			m.refuse("%v", err)
		case !check.Runs:
			m.refuse("this node cannot run %s: %s", f.Name, check.Why)
		}
		for _, lack := range check.Lacks {
			m.note("on this node %s", lack)
		}
		m.plan.Notes = append(m.plan.Notes, check.Notes...)
		if check.SwapImpact != "" {
			m.note("%s", check.SwapImpact)
		}
		next := dataplanes.Describe(ctx, f, settings.SHA256)
		if m.plan.To != m.plan.From {
			for _, limit := range next.Limits {
				m.plan.Differs = append(m.plan.Differs, "every Service: "+limit+": "+dataplanes.Meaning(sdk.Limit(limit)))
			}
		}
		return next
	}
	m.refuse("%v", dataplanes.UnknownPlugin(m.plan.To, names))
	return admin.Plugin{}
}

// lookLimit is how long the API server may take to name all Services.
const lookLimit = 30 * time.Second

// services looks at the Services of a cluster, as this node would serve them.
func (m *mover) services(ctx context.Context, kubeconfig string, next admin.Plugin) {
	here, err := thisMachine()
	if err == nil {
		err = m.look(ctx, kubeconfig, here, next)
	}
	if err != nil {
		m.note("Services were not looked at: %v", err)
	}
}

// look reads what the API server has once, and compares.
func (m *mover) look(ctx context.Context, kubeconfig string, here machine, next admin.Plugin) error {
	tracker := track.New(nil)
	tracker.Configure(factsOf(m.settings, here, time.Now()))
	client, err := watch.Connect(watch.Connection{
		Kubeconfig: kubeconfig, QPS: m.settings.ClientConnection.QPS, Burst: m.settings.ClientConnection.Burst,
		UserAgent: "pointsman/" + wire.Build(), Observe: func(watch.Request) {},
	})
	if err != nil {
		return err
	}
	source := watch.Kubernetes(client, tracker, watch.KubeSettings{NodeName: nodeName(m.settings, here), Eligible: func(bool) {},
		Report: func(n track.Notice) {
			if n.Reason == watch.NodeUnknown {
				m.note("%s", n.Message)
			}
		}})
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	ended := make(chan error, 1)
	go func() { ended <- source.Run(ctx) }() // ends with ctx
	for !tracker.HasSynced() && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	fault := source.Fault()
	cancel()
	<-ended
	if !tracker.HasSynced() {
		return fmt.Errorf("the API server did not name them within %s: %s", lookLimit, fault)
	}
	all := tracker.Services()
	m.plan.Services = len(all)
	m.compare(all, next)
	m.plan.Notes = append(m.plan.Notes, dataplanes.AtNodeAddresses(tracker)...)
	return nil
}

// compare says which Services would be served otherwise than kube-proxy does, by cause.
func (m *mover) compare(all []track.ServiceStatus, next admin.Plugin) {
	var causes phrase.Causes
	loopback := m.loopbackEnds()
	for _, s := range all {
		name := s.Key.String()
		for _, p := range s.Problems {
			causes.Add(p.Message, name)
		}
		for _, port := range s.Ports {
			svc := port.Service
			for _, need := range svc.Needs() {
				if len(next.Features) > 0 && !slices.Contains(next.Features, string(need)) {
					causes.Add(fmt.Sprintf("not served: %s does not serve %s", next.Name, need), name)
				}
			}
			if m.plan.From == "ipvs" && svc.Uses(sdk.Local) && len(svc.Local) == 0 && len(svc.Cluster) > 0 {
				causes.Add("dropped under the Local policy, without an endpoint here, where kube-proxy's ipvs mode uses other nodes' endpoints", name)
			}
			nodePort := slices.ContainsFunc(svc.Frontends, func(f sdk.Frontend) bool { return f.Addr.Addr().IsUnspecified() && f.Addr.Addr().Is4() })
			if loopback && nodePort {
				causes.Add("its node port does not answer on 127.0.0.1 any more", name)
			}
		}
	}
	m.plan.Differs = append(m.plan.Differs, causes.Lines("Service")...)
}

// loopbackEnds reports whether kube-proxy has node ports answer on 127.0.0.1, and the mode to
// come does not.
func (m *mover) loopbackEnds() bool {
	if m.plan.From != "iptables" || m.plan.To == "iptables" || m.plan.To == "userspace" {
		return false
	}
	var theirs struct {
		IPTables struct{ LocalhostNodePorts *bool }
	}
	if err := json.Unmarshal(m.settings.KubeProxy(), &theirs); err == nil && theirs.IPTables.LocalhostNodePorts != nil && !*theirs.IPTables.LocalhostNodePorts {
		return false
	}
	ranges, primary := m.settings.NodePorts()
	loopback := netip.MustParseAddr("127.0.0.1")
	restricted := slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Addr().Is4() })
	return !primary && (!restricted || slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(loopback) }))
}

// conclude says what the plan comes to, and the steps.
func (m *mover) conclude() {
	p := &m.plan
	p.Outcome = admin.OutcomeOf(len(p.Refused), len(p.Settings)+len(p.Differs)+len(p.Notes))
	switch p.Outcome {
	case admin.No:
		p.Summary = fmt.Sprintf("mode %s could not serve in kube-proxy's place on this node", p.To)
		return
	case admin.Look:
		p.Summary = fmt.Sprintf("mode %s can serve in kube-proxy's place on this node; what stands above comes with it", p.To)
	default:
		p.Summary = fmt.Sprintf("mode %s can serve in kube-proxy's place on this node, and no Service would be served otherwise", p.To)
	}
	p.Steps = moveSteps(p.From, p.To, len(m.running) > 0 && m.running[0].inPod(), len(p.Left) > 0)
}

func writeMovePlan(w io.Writer, p admin.MovePlan) {
	fmt.Fprintf(w, "kube-proxy %s → %s, by %s\n", p.From, p.To, p.Config)
	writeItems(w, "refused", "", p.Refused)
	writeItems(w, "settings", "all count", p.Settings)
	if p.Services > 0 {
		writeItems(w, "services", "", []string{phrase.Count(p.Services, "Service") + " looked at"})
	}
	writeItems(w, "differs", "nothing that is known", p.Differs)
	writeItems(w, "note", "", p.Notes)
	writeItems(w, "left over", "nothing", phrase.Alike(p.Left))
	writeItems(w, "kept", "", p.Kept)
	steps := make([]string, 0, len(p.Steps))
	for i, step := range p.Steps {
		steps = append(steps, fmt.Sprintf("%d. %s", i+1, step))
	}
	writeItems(w, "steps", "", steps)
	writeItems(w, string(p.Outcome), "", []string{p.Summary})
}
