// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/http"
	"slices"

	"github.com/pointsman/pointsman/host/admin"
)

// mostTraffic is how many ports the traffic of is shown: the busiest.
const mostTraffic = 200

// A trafficView is what ports of Services have had, the busiest first.
type trafficView struct {
	Reading admin.Reading
	Rows    []row
	Of      int // ports of which it is known
}

// traffic has the dataplane read what it counts. The page is not kept current: each look is work for it.
func (s *Site) traffic(w http.ResponseWriter, r *http.Request) error {
	if !s.reads.allow() {
		return errBusy
	}
	all := s.backend.Services()
	view := trafficView{Reading: s.backend.Traffic(r.Context(), all)}
	for of := range rows(all, "", anyState) {
		if of.Port != nil && of.Port.Traffic != nil {
			view.Rows = append(view.Rows, of)
		}
	}
	view.Of = len(view.Rows)
	slices.SortStableFunc(view.Rows, func(a, b row) int { return admin.Busier(a.Port.Traffic, b.Port.Traffic) })
	view.Rows = view.Rows[:min(view.Of, mostTraffic)]
	return s.show(w, http.StatusOK, "traffic", frame{Title: "Traffic", Here: "/services", Main: view})
}
