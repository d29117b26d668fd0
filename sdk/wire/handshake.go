// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

// The cookie tells a plugin that a host has launched it, and not a person.
const (
	cookieKey   = "POINTSMAN_PLUGIN"
	cookieValue = "8d7c4cf0-the-points-are-set"
)

// Handshake returns what go-plugin has to know at both ends.
func Handshake() plugin.HandshakeConfig {
	return plugin.HandshakeConfig{MagicCookieKey: cookieKey, MagicCookieValue: cookieValue}
}

// A registration gives go-plugin the services of a plugin. The host's side makes its own
// client, without go-plugin.
type registration struct {
	plugin.NetRPCUnsupportedPlugin
	server *server
}

func (r registration) GRPCServer(_ *plugin.GRPCBroker, g *grpc.Server) error {
	r.server.register(g)
	return nil
}

func (registration) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, fmt.Errorf("the host dials by itself")
}
