// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// Report says how far the present call is.
func (p *plugin) Report() sdk.Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.report
	r.Samples = slices.Clone(r.Samples)
	return r
}

func (p *plugin) tell(change func(*sdk.Report)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.report)
}

func (p *plugin) waiting(what string) { p.tell(func(r *sdk.Report) { r.Waiting = what }) }

func (p *plugin) step() { p.tell(func(r *sdk.Report) { r.Progress++ }) }
