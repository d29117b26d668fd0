// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/oracle"
	"github.com/pointsman/pointsman/plugins/internal/rules"
	"github.com/pointsman/pointsman/plugins/internal/rulestest"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

func nodeOf(family sdk.Family, node sdk.Node) nodeConfig {
	return nodeConfig{family: family, node: node, localhost: frame.Localhost(family, node)}
}

// piecesOf returns the rules of services on a node that has no other Services.
func piecesOf(of sdk.Family, node sdk.Node, services []sdk.Service) map[sdk.Name]rules.Piece {
	f := &family{many: func() int { return len(services) }}
	pieces := make(map[sdk.Name]rules.Piece)
	for _, svc := range services {
		if svc.Name.Family == of {
			pieces[svc.Name] = want(svc, node, f.hasComments(svc))
		}
	}
	return pieces
}

// trace returns the paths of a packet through a node that has only these rules.
func trace(rules *oracle.Rules, p oracle.Packet) ([]oracle.Path, error) {
	return oracle.Node{Bases: rules.Bases()}.Walk(p)
}

// outcome returns the result of p according to tables.
func outcome(t *testing.T, tables iptables.Tables, p sdktest.Packet, node sdk.Node) sdktest.Outcome {
	t.Helper()
	paths, err := trace(oracle.IPTables(tables), rulestest.Packet(p, node.Addrs))
	if err != nil {
		t.Fatal(err)
	}
	return rulestest.Outcome(t, paths, p.Want)
}
