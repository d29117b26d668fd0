// SPDX-License-Identifier: Apache-2.0

package demo

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

var (
	web = service{
		name: "web", network: "tcp", addr: "127.77.0.10:8080", manifest: "web.yaml", callers: 6,
		endpoints: []endpoint{{"web-a", "127.77.1.1:9080"}, {"web-b", "127.77.1.2:9080"}, {"web-c", "127.77.1.3:9080"}},
	}
	clock = service{
		name: "clock", network: "udp", addr: "127.77.0.11:5300", manifest: "clock.yaml", callers: 2,
		endpoints: []endpoint{{"clock-a", "127.77.2.1:9053"}, {"clock-b", "127.77.2.2:9053"}},
	}
)

func services() []service { return []service{web, clock} }
