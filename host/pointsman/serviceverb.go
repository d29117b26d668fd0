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

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/health"
	"github.com/pointsman/pointsman/host/phrase"
)

func serviceVerb() *cobra.Command {
	return group("service", "List the Services of the running host, or show one", serviceListVerb(), serviceShowVerb())
}

func serviceListVerb() *cobra.Command {
	var namespace string
	var problems bool
	c := completing(verb("list [TEXT]", "List the ports of all Services, their states, and since when", cobra.MaximumNArgs(1)), serviceNames)
	c.Flags().StringVarP(&namespace, "namespace", "n", "", "only Services of the namespace `NAME`")
	c.Flags().BoolVar(&problems, "problems", false, "only ports that are not served or have no endpoint")
	return printing(c, func(c *cobra.Command, args []string) (admin.ServiceList, error) {
		list, err := client(c).Services(c.Context())
		if err != nil {
			return list, err
		}
		list.Items = slices.DeleteFunc(list.Items, func(s admin.Service) bool { return namespace != "" && s.Namespace != namespace })
		for i := range list.Items {
			s := &list.Items[i]
			s.Ports = slices.DeleteFunc(s.Ports, func(p admin.Port) bool {
				return problems && p.State == health.Served || len(args) > 0 && !s.Mentions(p, args[0])
			})
		}
		list.Items = slices.DeleteFunc(list.Items, func(s admin.Service) bool {
			return len(s.Ports) == 0 && (len(args) > 0 || problems && len(s.Problems) == 0)
		})
		if list.Unknown != "" {
			fmt.Fprintln(c.ErrOrStderr(), "the list is not complete: the source: "+list.Unknown)
			err = errDegraded
		}
		return list, err
	}, writeServices)
}

func writeServices(w io.Writer, list admin.ServiceList) {
	fmt.Fprintln(w, "NAME\tSTATE\tSINCE\tENDPOINTS\tHERE\tPOLICY\tAFFINITY\tFRONTENDS")
	for _, s := range list.Items {
		for _, p := range s.Ports {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d/%d\t%d\t%s\t%s\t%s\n", s.PortName(p), p.State, ago(p.Since),
				len(p.Cluster), p.Total, len(p.Local), phrase.List(p.Policies), affinityOf(p), phrase.Some(p.Frontends))
		}
		if len(s.Ports) == 0 {
			fmt.Fprintf(w, "%s/%s\tnot served\t-\t-\t-\t-\t-\t%s\n", s.Namespace, s.Name, cmp.Or(strings.Join(s.Problems, "; "), "it has no port that is"))
		}
	}
}

func affinityOf(p admin.Port) string {
	if p.AffinitySeconds == 0 {
		return "-"
	}
	return (time.Duration(p.AffinitySeconds) * time.Second).String()
}

func serviceShowVerb() *cobra.Command {
	c := verb("show NAMESPACE/NAME", "Show one Service: its endpoints, why each is used or not, and the state in the kernel", cobra.ExactArgs(1))
	return printing(completing(c, serviceNames), func(c *cobra.Command, args []string) (admin.ServiceDetail, error) {
		namespace, name, _ := strings.Cut(args[0], "/")
		if namespace == "" || name == "" || strings.Contains(name, "/") {
			return admin.ServiceDetail{}, usageError{fmt.Errorf("%q names no Service: want NAMESPACE/NAME; try: pointsman service list %s", args[0], args[0])}
		}
		return client(c).Service(c.Context(), namespace, name)
	}, writeService)
}

// serviceNames returns the names of all Services.
func serviceNames(ctx context.Context, c *cobra.Command) (names []string) {
	list, _ := client(c).Services(ctx) // empty if no host answers
	for _, s := range list.Items {
		names = append(names, s.Namespace+"/"+s.Name)
	}
	return names
}

func writeService(w io.Writer, s admin.ServiceDetail) {
	writeField(w, "service", s.Namespace+"/"+s.Name)
	writeField(w, "slices", phrase.List(s.EndpointSlices))
	if s.HealthPort != 0 {
		writeField(w, "health port", fmt.Sprintf("%d answers that %s here", s.HealthPort, phrase.Count(s.LocalReady, "endpoint")+" is ready"))
	}
	writeItems(w, "problem", "", s.Problems)
	writeItems(w, "note", "", s.Notes)
	for _, p := range s.Ports {
		writePort(w, s.PortName(p), p)
	}
	if s.KernelUnread != "" {
		fmt.Fprintf(w, "\nwhat is served now is not known: %s\n", s.KernelUnread)
	}
	if len(s.Events) > 0 {
		fmt.Fprintln(w)
		writeEvents(w, s.Events)
	}
}

func writePort(w io.Writer, name string, p admin.Port) {
	verb := "is"
	if p.State == health.NoEndpoints {
		verb = "has"
	}
	fmt.Fprintf(w, "\n%s %s %s for %s%s\n", name, verb, p.State, ago(p.Since), reasonText(p.Why))
	if p.AffinitySeconds > 0 {
		fmt.Fprintf(w, "a client keeps its endpoint for %s after its last connection\n", affinityOf(p))
	}
	if len(p.Kernel) > 0 {
		fmt.Fprintln(w, "\nFRONTEND\tSERVED NOW\tDIFFERS")
		for _, k := range p.Kernel {
			fmt.Fprintf(w, "%s\t%s\t%s\n", k.Frontend, phrase.List(k.Endpoints), cmp.Or(k.Differs, "-"))
		}
	} else {
		for _, f := range p.Frontends {
			fmt.Fprintf(w, "to be reached at %s\n", f)
		}
	}
	if len(p.Endpoints) > 0 {
		fmt.Fprintln(w, "\nENDPOINT\tNODE\tZONE\tCONDITION\tCLUSTER\tLOCAL")
		for _, e := range p.Endpoints {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", e.Address, cmp.Or(e.Node, "-"), cmp.Or(e.Zone, "-"), e.Condition(), cmp.Or(e.NotCluster, "used"), cmp.Or(e.NotLocal, "used"))
		}
	}
}
