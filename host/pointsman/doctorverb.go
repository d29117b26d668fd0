// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/dataplanes"
	"github.com/pointsman/pointsman/host/doctor"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/supervise"
)

func doctorVerb() *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Look at all that Services on this node depend on, with or without a running host",
		Long: `Doctor looks at the running host, its config file, its folders and its plugins, at whether the API
server grants what the host asks, at kube-proxy and other programs that serve Services, and at what
the kernel has: forwarding, tracked connections, ports. It changes nothing. It exits 0 when all is well, 2 when there is something to look at, 1 when
something keeps Services from being served. Without root some of it is not looked at.`,
		Args: noWords(),
	}
	out := addFormat(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		d := admin.Diagnosis{Meta: admin.Meta{APIVersion: admin.APIVersion, Kind: "Diagnosis"}, Checks: examine(c.Context(), c)}
		d.Result = admin.Worst(d.Checks)
		if err := out.print(c.OutOrStdout(), d, func(w io.Writer) { writeDiagnosis(w, d) }); err != nil {
			return err
		}
		switch d.Result {
		case admin.Fail:
			return errRefused
		case admin.Warn:
			return errDegraded
		}
		return nil
	}
	return c
}

func writeDiagnosis(w io.Writer, d admin.Diagnosis) {
	for _, f := range d.Checks {
		fmt.Fprintf(w, "%s\t%s\t%s\n", paint(w, f.Result, string(f.Result)), f.Check, f.Why)
		if f.Try != "" {
			fmt.Fprintf(w, "%s\t\t  try: %s\n", paint(w, "", ""), f.Try)
		}
	}
	fmt.Fprintf(w, "%s\tin all\t\n", paint(w, d.Result, string(d.Result)))
}

// examine makes all checks, in the order in which one would mend what they find.
func examine(ctx context.Context, c *cobra.Command) []admin.Finding {
	ctx, stop := untilInterrupt(ctx)
	defer stop()
	x := examination{privileged: os.Geteuid() == 0}
	x.status, x.unreachable = client(c).Status(ctx)
	x.settings, x.invalid = settings(c)
	all := slices.Concat(x.host(), x.config(ctx))
	if x.settings != nil {
		all = slices.Concat(all, x.server(ctx), x.folders(), x.plugins(ctx))
	}
	node := doctor.Node{Proc: "/proc", Interfaces: doctor.Interfaces(), Kinds: doctor.Kinds()}
	if list, err := client(c).Services(ctx); err == nil {
		node.NodePorts = nodePorts(list)
	}
	return slices.Concat(all, x.kubeProxy(), node.Examine())
}

// nodePorts returns the node ports of Services.
func nodePorts(list admin.ServiceList) (ports []uint16) {
	for _, s := range list.Items {
		for _, p := range s.Ports {
			for _, f := range p.Frontends {
				var port uint16
				if _, err := fmt.Sscanf(f, "node-port *:%d", &port); err == nil {
					ports = append(ports, port)
				}
			}
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// An examination is what the checks of this program look at.
type examination struct {
	privileged  bool
	status      admin.Status
	unreachable error // no host answers
	settings    *config.Host
	invalid     error // there are no settings
}

// found is one finding, as a list.
func found(check string, result admin.Result, reason, try string) []admin.Finding {
	return []admin.Finding{{Check: check, Result: result, Why: reason, Try: try}}
}

func (x examination) host() []admin.Finding {
	const check = "host"
	if x.unreachable != nil {
		return found(check, admin.Fail, oneLineOf(x.unreachable), "pointsman run, or systemctl start pointsman")
	}
	all := found(check, admin.OK, fmt.Sprintf("version %s, process %d, mode %s", x.status.Host.Version, x.status.Host.PID, x.status.Mode), "")
	for _, w := range x.status.Warnings {
		all = append(all, admin.Finding{Check: check, Result: admin.Warn, Why: w.Code + ": " + w.Text, Try: w.Try})
	}
	return all
}

func (x examination) config(ctx context.Context) []admin.Finding {
	const check = "config"
	if x.invalid != nil {
		return found(check, admin.Fail, oneLineOf(x.invalid), "pointsman config validate")
	}
	problems, notes := dataplanes.Validate(ctx, x.settings)
	problems = slices.Concat(kubeconfigProblems(x.settings), groupProblems(x.settings), problems)
	var all []admin.Finding
	for _, p := range problems {
		all = append(all, admin.Finding{Check: check, Result: admin.Fail, Why: p.String()})
	}
	for _, p := range append(x.settings.Warnings(), notes...) {
		all = append(all, admin.Finding{Check: check, Result: admin.Warn, Why: p.String()})
	}
	if len(all) == 0 {
		from := x.settings.Path()
		if from == "" {
			from = "there is no file, and the defaults"
		}
		all = found(check, admin.OK, from+" can be used", "")
	}
	return all
}

// plugins asks the one of the mode whether it can run here, and the others what they, or kube-proxy
// in the modes that they replace, have left behind.
func (x examination) plugins(ctx context.Context) (all []admin.Finding) {
	inUse := modesOf(x.status)
	if x.unreachable != nil {
		inUse = config.InUse(x.settings.Mode)
	}
	for _, f := range dataplanes.Discover(x.settings) {
		check := "plugin " + f.Name
		switch {
		case f.Err != nil:
			all = append(all, found(check, admin.Fail, oneLineOf(f.Err), "")...)
		case len(doctor.Executable(check, f.Path)) > 0:
			all = append(all, doctor.Executable(check, f.Path)...)
		case !x.privileged:
			all = append(all, found(check, admin.Unknown, "it was not asked, which needs root", "sudo pointsman doctor")...)
		case slices.Contains(inUse, f.Name):
			all = append(all, x.usable(ctx, check, f)...)
		default:
			all = append(all, x.leftovers(ctx, check, f)...)
		}
	}
	return all
}

func (x examination) usable(ctx context.Context, check string, f supervise.Found) (all []admin.Finding) {
	c, err := dataplanes.Check(ctx, f, x.settings.Plugins[f.Name])
	if err == nil && !c.Runs {
		err = errors.New(c.Why)
	}
	if err != nil {
		return found(check, admin.Fail, oneLineOf(err), "pointsman plugin check "+f.Name)
	}
	all = found(check, admin.OK, "this node can run it", "")
	for _, note := range slices.Concat(c.Lacks, c.Notes) {
		all = append(all, found(check, admin.Warn, note, "")...)
	}
	return all
}

func (x examination) leftovers(ctx context.Context, check string, f supervise.Found) []admin.Finding {
	left, err := dataplanes.WouldRemove(ctx, f, x.settings.Plugins[f.Name].SHA256, true)
	switch {
	case err != nil:
		return found(check, admin.Unknown, oneLineOf(err), "")
	case len(left) == 0:
		return found(check, admin.OK, "neither it nor kube-proxy in that mode has left anything", "")
	}
	return found(check, admin.Warn, "left behind: "+phrase.Some(phrase.Alike(left)), "pointsman cleanup --dry-run, and with --kube-proxy what kube-proxy left")
}

// kubeProxy looks for a process of kube-proxy's in this network namespace.
func (x examination) kubeProxy() []admin.Finding {
	const check = "kube-proxy"
	switch all, err := kubeProxies(); {
	case err != nil:
		return found(check, admin.Unknown, oneLineOf(err), "")
	case len(all) == 0:
		return found(check, admin.OK, "no process of it is in this network namespace", "")
	case x.unreachable == nil:
		return found(check, admin.Warn, "it runs beside this host: process "+processes(all), "have one of the two serve this node (docs/kube-proxy.md)")
	default:
		return found(check, admin.Warn, "it runs: process "+processes(all), "pointsman plan --from-kube-proxy")
	}
}

// oneLineOf is an error for a table.
func oneLineOf(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
