// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// options are what the host's file may say of this plugin.
type options struct {
	Scheduler     string         `json:"scheduler"`
	StrictARP     bool           `json:"strictARP"`
	ExcludeCIDRs  []netip.Prefix `json:"excludeCIDRs"`
	TCPTimeout    duration       `json:"tcpTimeout"`
	TCPFinTimeout duration       `json:"tcpFinTimeout"`
	UDPTimeout    duration       `json:"udpTimeout"`
	Backend       string         `json:"backend"`
}

// schema describes options to the author of the file.
const schema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "scheduler": {"enum": ["rr", "wrr", "lc", "wlc", "lblc", "lblcr", "sh", "dh", "sed", "nq", "mh"], "default": "rr", "description": "how a virtual server chooses, unless its Service says otherwise"},
    "strictARP": {"type": "boolean", "default": false, "description": "answer ARP only for addresses of the interface that was asked; needed where something else announces the addresses of Services"},
    "excludeCIDRs": {"type": "array", "items": {"type": "string"}, "default": [], "description": "ranges in which virtual services are other programs', whatever they look like"},
    "tcpTimeout": {"type": "string", "default": "0s", "description": "after how long a silent TCP connection is forgotten; 0s: the kernel's own value"},
    "tcpFinTimeout": {"type": "string", "default": "0s", "description": "the same, after a FIN"},
    "udpTimeout": {"type": "string", "default": "0s", "description": "the same, for UDP"},
    "backend": {"enum": ["auto", "nft", "legacy"], "default": "auto", "description": "which of the kernel's two rule machines to write to; auto: the one in use on the node"}
  }
}`

// A duration is written as Go writes it: "15m".
type duration time.Duration

func (d *duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	v, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return err
	case v < 0, v > 0 && v < time.Second, v%time.Second != 0:
		return fmt.Errorf("%s is not a number of whole seconds", text)
	}
	*d = duration(v)
	return nil
}

func parseOptions(data []byte) (options, error) {
	o := options{Scheduler: "rr", Backend: "auto"}
	if err := frame.ParseOptions(mode, data, &o); err != nil {
		return o, err
	}
	o.Scheduler = cmp.Or(o.Scheduler, "rr")
	if !slices.Contains(schedulers, o.Scheduler) {
		return o, &sdk.Refusal{Field: "options.scheduler", Why: fmt.Sprintf("the kernel has no scheduler %q", o.Scheduler), Try: "one of " + strings.Join(schedulers, ", ")}
	}
	return o, iptables.CheckBackend(&o.Backend)
}

// timeouts are those that were asked for.
func (o options) timeouts() timeouts {
	return timeouts{time.Duration(o.TCPTimeout), time.Duration(o.TCPFinTimeout), time.Duration(o.UDPTimeout)}
}
