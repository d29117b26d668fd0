// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"net/netip"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/sdk"
)

// options are what the host's file may say of this plugin.
type options struct {
	Protect            string `json:"protect"`
	LocalhostNodePorts bool   `json:"localhostNodePorts"`
	CountConnections   bool   `json:"countConnections"`
}

// schema describes the options, for people that write the file.
const schema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "protect": {"enum": ["auto", "never"], "default": "auto", "description": "whether other programs are kept from changing the tables, where the kernel can do that (Linux 6.9)"},
    "localhostNodePorts": {"type": "boolean", "default": false, "description": "whether IPv4 node ports answer on 127.0.0.1, if nodePortAddresses has it"},
    "countConnections": {"type": "boolean", "default": false, "description": "whether connections are counted for each endpoint; metrics have those with the most"}
  }
}`

func parseOptions(data []byte) (options, error) {
	o := options{Protect: "auto"}
	if err := frame.ParseOptions(mode, data, &o); err != nil {
		return o, err
	}
	switch o.Protect {
	case "":
		o.Protect = "auto"
	case "auto", "never":
	default:
		return o, &sdk.Refusal{Field: "options.protect", Why: fmt.Sprintf("%q is none of auto, never", o.Protect)}
	}
	return o, nil
}

// localhost reports whether node ports are to be had on 127.0.0.1. IPv6 has no way to do it.
func (o options) localhost(f sdk.Family, n sdk.Node) bool {
	return o.LocalhostNodePorts && f == sdk.IPv4 && n.TakesNodePorts(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
}
