// SPDX-License-Identifier: Apache-2.0

package demo

import "slices"

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
