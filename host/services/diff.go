// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/health"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/sdk"
)

// diffLimit limits a comparison. Reading large tables takes seconds on a busy node.
const diffLimit = 25 * time.Second

// maxChanges limits the number of changes in a Diff.
const maxChanges = 10_000

// Diff compares what the serving dataplane should serve with what it reads from the kernel.
func (q Queries) Diff(ctx context.Context) (admin.Diff, error) {
	ctx, cancel := context.WithTimeout(ctx, diffLimit)
	defer cancel()
	p := q.Serving()
	d := admin.Diff{Mode: p.Name(), Changes: []admin.Change{}, Unserved: []admin.Problem{}}
	if s := q.Swap(); s != nil {
		d.Notes = append(d.Notes, fmt.Sprintf("a swap from %s to %s is in progress: %s", s.From, s.To, s.Stage))
	}
	if n := p.Progress().Pending; n > 0 {
		d.Notes = append(d.Notes, "not confirmed yet by the dataplane, and perhaps among the changes: "+phrase.Count(n, "port"))
	}
	if q.Unanswered() != "" {
		return d, &admin.Error{Code: http.StatusServiceUnavailable, What: "diff of " + p.Name(), Why: "the Services have not been read completely yet", Try: "pointsman status"}
	}
	found, err := Inspect(ctx, p, func(sdk.Name) bool { return true })
	if err != nil {
		return d, err
	}
	for s := range q.Tracker.All() {
		for _, port := range s.Ports {
			svc, now := port.Service, p.Standing(port.Service.Name)
			if len(svc.Frontends) == 0 || now.Lacks != nil {
				continue // it is not sent
			}
			if now.Err != nil {
				d.Unserved = append(d.Unserved, admin.Problem{Service: svc.Name.String(), Reason: health.Failed, Why: now.Err.Error()})
			} else {
				addChanges(&d, svc, found[svc.Name])
			}
			delete(found, svc.Name)
		}
	}
	for name, served := range found {
		addChanges(&d, sdk.Service{Name: name}, served)
	}
	slices.SortFunc(d.Changes, func(a, b admin.Change) int { return strings.Compare(a.Step, b.Step) })
	return d, nil
}

// addChanges adds the frontends of a Service that are not served as desired.
func addChanges(d *admin.Diff, s sdk.Service, served []sdk.Served) {
	for _, row := range Compare(s, served) {
		switch {
		case row.Differs == "":
		case len(d.Changes) == maxChanges:
			d.More++
		default:
			d.Changes = append(d.Changes, admin.Change{
				Step:    fmt.Sprintf("%s of %s", row.Frontend, s.Name),
				Details: []string{row.Differs, "served now: " + phrase.Some(row.Endpoints)},
			})
		}
	}
}
