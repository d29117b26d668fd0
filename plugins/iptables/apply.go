// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
)

// A side is one family: its rules, and what else this dataplane has in it.
type side struct {
	*ruleset.Rules[sdk.Name]
	node nodeConfig

	rests map[sdk.Name]*rest // heavy Services that are still to be written

	counts bool // rules can count in accounts,
	asked  bool // and that will not change

	audited time.Time         // when the last part of an audit was
	rounds  *conntrack.Rounds // of forgetting UDP flows
}

func newSide(tool iptables.Tool) *side {
	s := &side{
		Rules:   ruleset.NewRules(ruleConfig(tool.Family), tool),
		node:    nodeConfig{family: tool.Family},
		rests:   make(map[sdk.Name]*rest),
		audited: time.Now(),
		rounds:  conntrack.NewRounds(tool.Family),
	}
	s.Served = s.keep
	s.Reading = func() error {
		if !s.counts || s.Tool.Hold == nil {
			return nil
		}
		return openAccounts() // without rules, another process may have removed them
	}
	return s
}

// lead has the jumps be those that role needs.
func (s *side) lead(role sdk.Role) { s.SetJumps(s.leads(role), s.node.jumps(sdk.Active)) }

// sync makes the tables have what the changes need, with the jumps of role in place. A
// Service whose rules the kernel does not take keeps its old ones, and is named; the others
// go in without it.
func (s *side) sync(ctx context.Context, changes map[sdk.Name]ruleset.Desired, role sdk.Role) ([]sdk.Failure, error) {
	s.lead(role)
	return s.follow(ctx, changes)
}

// follow is sync, with the jumps as they are.
func (s *side) follow(ctx context.Context, changes map[sdk.Name]ruleset.Desired) ([]sdk.Failure, error) {
	refused, err := s.Sync(ctx, changes)
	var failed []sdk.Failure
	for name, err := range refused {
		failed = append(failed, sdk.Failure{Name: name, Err: err})
	}
	return failed, err
}
