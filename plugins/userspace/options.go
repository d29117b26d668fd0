// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
)

// options are what the host's file may say of this plugin.
type options struct {
	udpIdleTimeout time.Duration // after which a UDP flow without a datagram ends
	redirect       string        // whether rules lead callers here
	backend        string        // to which those are written
}

// What the options that are words may say.
const (
	redirectAuto   = "auto"
	redirectAlways = "always"
	redirectNever  = "never"

	backendAuto = "auto"
)

var defaults = options{udpIdleTimeout: relay.DefaultUDPIdle, redirect: redirectAuto, backend: backendAuto}

// schema describes the options, for people that write the file.
const schema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "udpIdleTimeout": {"type": "string", "default": "250ms", "description": "how long a UDP flow is kept without a datagram in either direction, from 1ms to 1h"},
    "redirect": {"enum": ["auto", "always", "never"], "default": "auto", "description": "whether iptables rules lead callers of every address here, which needs root; auto: if it is possible; never: only addresses that the machine has are served"},
    "backend": {"enum": ["auto", "nft", "legacy"], "default": "auto", "description": "which of the kernel's two rule machines such rules are written to; auto: the one in use on the node"}
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
		if err := o.parse(name, fields[name]); err != nil {
			return o, err
		}
	}
	return o, nil
}

func (o *options) parse(name string, data json.RawMessage) error {
	var err error
	try := help
	switch name {
	case "udpIdleTimeout":
		try = name + ": 250ms"
		err = parseTimeout(data, &o.udpIdleTimeout)
	case "redirect":
		err = parseWord(data, &o.redirect, redirectAuto, redirectAlways, redirectNever)
	case "backend":
		err = parseWord(data, &o.backend, backendAuto, "nft", "legacy")
	default:
		err, try = errors.New("there is no such option"), nearest(name)
	}
	if err != nil {
		return &sdk.Refusal{Field: "options." + name, Why: err.Error(), Try: try}
	}
	return nil
}

func nearest(name string) string {
	for _, known := range []string{"udpIdleTimeout", "redirect", "backend"} {
		if strings.EqualFold(name, known) {
			return known + ", with this case"
		}
	}
	return help
}

func parseWord(data json.RawMessage, into *string, words ...string) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil || !slices.Contains(words, text) {
		return fmt.Errorf("%s is none of %s", data, strings.Join(words, ", "))
	}
	*into = text
	return nil
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
