// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/configs"
	"github.com/pointsman/pointsman/sdk/statefile"
)

// A service is what the manifests in configs/demo say, as the demo's servers and
// requests need it. A test holds the two against each other.
type service struct {
	name      string
	network   string // tcp or udp
	addr      string // as written: the address that requests go to
	manifest  string // the file it stands in
	endpoints []endpoint
	callers   int // that send requests at a time
}

// An endpoint is a small server of the demo's.
type endpoint struct {
	name string
	addr string // as written
}

// has reports whether one of s's endpoints has this name.
func (s service) has(name string) bool {
	return slices.ContainsFunc(s.endpoints, func(e endpoint) bool { return e.name == name })
}

// The ports are such as few other programs take: one that listens on all addresses
// of the machine would have them on these too.
var (
	web = service{
		name: "web", network: "tcp", addr: "127.77.0.10:7780", manifest: "web.yaml", callers: 6,
		endpoints: []endpoint{{"web-a", "127.77.1.1:7781"}, {"web-b", "127.77.1.2:7781"}, {"web-c", "127.77.1.3:7781"}},
	}
	clock = service{
		name: "clock", network: "udp", addr: "127.77.0.11:7753", manifest: "clock.yaml", callers: 2,
		endpoints: []endpoint{{"clock-a", "127.77.2.1:7754"}, {"clock-b", "127.77.2.2:7754"}},
	}
)

func services() []service { return []service{web, clock} }

// writeManifests makes a folder of the manifests that were built in, moved into the demo's
// network.
func writeManifests(folder string, n network) error {
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	for _, svc := range services() {
		text, err := configs.Demo.ReadFile("demo/" + svc.manifest)
		if err == nil {
			err = statefile.Write(filepath.Join(folder, svc.manifest), []byte(n.own(string(text))))
		}
		if err != nil {
			return fmt.Errorf("write the demo's manifests: %w", err)
		}
	}
	return nil
}

// withoutLine returns text without its one line that holds word, and that line.
func withoutLine(text, word string) (rest, line string, err error) {
	found := 0
	for l := range strings.Lines(text) {
		if strings.Contains(l, word) {
			line = strings.TrimRight(l, "\n")
			found++
		} else {
			rest += l
		}
	}
	if found != 1 {
		return "", "", fmt.Errorf("%d lines hold %q, want one", found, word)
	}
	return rest, line, nil
}

// written is the network that the manifests in configs/demo name.
const written = "127.77."

// A network is a part of 127.0.0.0/8 that this demo has for itself, so that two of
// them can run at a time.
type network struct {
	prefix string       // such as "127.77."
	guard  net.Listener // whose address reserves the network until it is closed
}

// claim takes the first network that is free, beginning with the one that is
// written in the manifests.
func claim() (network, error) {
	var last error
	for n := 77; n < 97; n++ {
		prefix := fmt.Sprintf("127.%d.", n)
		guard, err := net.Listen("tcp4", prefix+"0.1:7077")
		if err == nil {
			return network{prefix, guard}, nil
		}
		last = err
	}
	return network{}, fmt.Errorf("find free addresses in 127.77.0.0 to 127.96.255.255 (Linux has them all, other systems only 127.0.0.1): %w", last)
}

// own returns text with the network's own addresses instead of those written.
func (n network) own(text string) string { return strings.ReplaceAll(text, written, n.prefix) }

// at returns an address as written, in the network itself.
func (n network) at(addr string) netip.AddrPort { return netip.MustParseAddrPort(n.own(addr)) }
