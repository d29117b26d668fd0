// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/pointsman/pointsman/sdk"
)

// options are what the host's file may say of this plugin.
type options struct {
	Backend            string `json:"backend"`
	LocalhostNodePorts *bool  `json:"localhostNodePorts"`
}

// schema describes the options, for people that write the file.
const schema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "backend": {"enum": ["auto", "nft", "legacy"], "default": "auto", "description": "which of the kernel's two rule machines to write to; auto: the one in use on the node"},
    "localhostNodePorts": {"type": "boolean", "default": true, "description": "whether IPv4 node ports answer on 127.0.0.1, if nodePortAddresses has it"}
  }
}`

func parseOptions(data []byte) (options, error) {
	var o options
	if len(bytes.TrimSpace(data)) > 0 {
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		if err := d.Decode(&o); err != nil {
			return o, &sdk.Refusal{Field: "options", Why: err.Error(), Try: "pointsman plugin info iptables, for what it takes"}
		}
	}
	switch o.Backend {
	case "":
		o.Backend = "auto"
	case "auto", "nft", "legacy":
	default:
		return o, &sdk.Refusal{Field: "options.backend", Why: fmt.Sprintf("%q is none of auto, nft, legacy", o.Backend)}
	}
	if o.LocalhostNodePorts == nil {
		yes := true
		o.LocalhostNodePorts = &yes
	}
	return o, nil
}
