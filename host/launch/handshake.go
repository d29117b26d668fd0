// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"

	"github.com/pointsman/pointsman/sdk/wire"
)

// pluginSets returns what go-plugin chooses a major from. The sets are empty, because the host
// makes its connection without go-plugin.
func pluginSets() map[int]plugin.PluginSet {
	sets := make(map[int]plugin.PluginSet)
	for _, major := range wire.Majors() {
		sets[int(major)] = plugin.PluginSet{}
	}
	return sets
}

// silent returns the only logger under which go-plugin leaves a plugin's stderr alone.
// Under any other it parses each line, and a line such as {"@message":5} ends
// the host.
func silent() hclog.Logger { return hclog.New(&hclog.LoggerOptions{Level: hclog.Off}) }

// A handshake is the one line that a plugin prints to stdout:
// core|major|network|address|protocol|certificate.
type handshake struct {
	major       uint32
	certificate []byte // DER
}

// parseHandshake reads what we need of the line; go-plugin reads the rest. It is
// false for a line that is something else.
func parseHandshake(line string) (handshake, bool) {
	parts := strings.Split(strings.TrimSpace(line), "|")
	if len(parts) < 5 || parts[0] != strconv.Itoa(plugin.CoreProtocolVersion) {
		return handshake{}, false
	}
	major, err := strconv.ParseUint(parts[1], 10, 32)
	if err != nil {
		return handshake{}, false
	}
	h := handshake{major: uint32(major)}
	if len(parts) > 5 {
		h.certificate, _ = base64.RawStdEncoding.DecodeString(parts[5]) // checked where it is used
	}
	return h, true
}

func (h handshake) speaksOurs() bool { return slices.Contains(wire.Majors(), h.major) }

// certified reports why the certificate cannot be used, if so.
func (h handshake) certified() error {
	if len(h.certificate) == 0 {
		return fmt.Errorf("it answered without a certificate, so it cannot be told from another: build it with wire.Serve")
	}
	if _, err := x509.ParseCertificate(h.certificate); err != nil {
		return fmt.Errorf("it answered with a certificate that is none: %w", err)
	}
	return nil
}
