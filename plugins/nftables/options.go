// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"cmp"
	"fmt"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
)

// options are the plugin's options in the host's config file.
type options struct {
	Protect            string `json:"protect"`
	LocalhostNodePorts bool   `json:"localhostNodePorts"`
}

// schema is the JSON schema of options.
const schema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "protect": {"enum": ["auto", "never"], "default": "auto", "description": "whether the tables are protected from changes by other programs; needs Linux 6.9"},
    "localhostNodePorts": {"type": "boolean", "default": false, "description": "whether IPv4 node ports answer on 127.0.0.1, if nodePortAddresses has it"}
  }
}`

func parseOptions(data []byte) (options, error) {
	o := options{Protect: "auto"}
	if err := frame.ParseOptions(mode, data, &o); err != nil {
		return o, err
	}
	o.Protect = cmp.Or(o.Protect, "auto")
	if o.Protect != "auto" && o.Protect != "never" {
		return o, &sdk.Refusal{Field: "options.protect", Why: fmt.Sprintf("%q is none of auto, never", o.Protect)}
	}
	return o, nil
}

// localhost reports whether node ports are served on 127.0.0.1.
func (o options) localhost(f sdk.Family, n sdk.Node) bool {
	return o.LocalhostNodePorts && frame.Localhost(f, n)
}

// settings returns the kernel parameters for a node.
//
// Invariant: the guard chain is in place while route_localnet is set. The frame sets the parameters after it
// wrote the table, and restores them before it removes the table.
func (o options) settings(n sdk.Node) sysctl.Settings {
	all := append(sysctl.Conntrack(sysctl.Folder, n.Conntrack), sysctl.Forwarding...)
	if o.localhost(sdk.IPv4, n) {
		all = append(all, sysctl.Localnet)
	}
	return all
}
