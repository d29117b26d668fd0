// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/sdk"
)

// familyRules are the rules of one family, and the node that they are for.
type familyRules struct {
	*ruleset.Rules[sdk.Name]
	node nodeConfig

	counts bool // rules can count in accounts,
	asked  bool // and that will not change
}

func newFamilyRules(tool iptables.Tool) *familyRules {
	s := &familyRules{Rules: ruleset.NewRules(ruleConfig(tool.Family), tool), node: nodeConfig{family: tool.Family}}
	s.Reading = func() error {
		if !s.counts || s.Tool.Hold == nil {
			return nil
		}
		return openAccounts() // without rules, another process may have removed them
	}
	return s
}

// lead has the jumps be those that role needs.
func (s *familyRules) lead(role sdk.Role) { s.SetJumps(s.leads(role), s.node.jumps(sdk.Active)) }
