// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// options are what the host's file may say of this plugin.
type options struct {
	udpIdleTimeout time.Duration // after which a UDP flow without a datagram ends
}

var defaults = options{udpIdleTimeout: 250 * time.Millisecond}

// schema describes options to whoever writes the file.
const schema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "udpIdleTimeout": {"type": "string", "default": "250ms", "description": "how long a UDP flow is kept without a datagram in either direction, from 1ms to 1h"}
  }
}`

const help = "pointsman plugin info userspace, for what it takes"

func parseOptions(data []byte) (options, error) {
	o := defaults
	if len(bytes.TrimSpace(data)) == 0 {
		return o, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return o, &sdk.Refusal{Field: "options", Why: "no JSON object: " + err.Error(), Try: help}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name != "udpIdleTimeout" {
			return o, &sdk.Refusal{Field: "options." + name, Why: "there is no such option", Try: nearest(name)}
		}
		if err := parseTimeout(fields[name], &o.udpIdleTimeout); err != nil {
			return o, &sdk.Refusal{Field: "options." + name, Why: err.Error(), Try: name + ": 250ms"}
		}
	}
	return o, nil
}

func nearest(name string) string {
	if strings.EqualFold(name, "udpIdleTimeout") {
		return "udpIdleTimeout, with this case"
	}
	return help
}

func parseTimeout(data json.RawMessage, into *time.Duration) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("%s is no duration in quotes", data)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is no duration", text)
	}
	if d < time.Millisecond || d > time.Hour {
		return fmt.Errorf("%s is not from 1ms to 1h", text)
	}
	*into = d
	return nil
}
