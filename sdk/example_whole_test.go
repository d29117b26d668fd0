// SPDX-License-Identifier: Apache-2.0

package sdk_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/pointsman/pointsman/sdk"
)

// A balancer writes the configuration file of another program. It has an option, reports the
// Services that it cannot write, and lists what is served.
type balancer struct {
	mu      sync.Mutex // list may be called beside serve
	written []sdk.Served
}

func (b *balancer) configure(_ context.Context, setup sdk.Setup) error {
	_, err := algorithm(setup.Options)
	return err
}

// algorithm returns the only option.
func algorithm(options []byte) (string, error) {
	o := struct{ Algorithm string }{"roundrobin"}
	if len(options) > 0 {
		d := json.NewDecoder(bytes.NewReader(options))
		d.DisallowUnknownFields()
		if err := d.Decode(&o); err != nil {
			return "", &sdk.Refusal{Field: "options", Why: err.Error()}
		}
	}
	if o.Algorithm != "roundrobin" && o.Algorithm != "leastconn" {
		return "", &sdk.Refusal{Field: "options.algorithm", Why: fmt.Sprintf("there is no %q", o.Algorithm), Try: "roundrobin or leastconn"}
	}
	return o.Algorithm, nil
}

func (b *balancer) serve(_ context.Context, setup sdk.Setup, state sdk.State) error {
	how, err := algorithm(setup.Options)
	if err != nil {
		return err // nothing is served, and the host tries again
	}
	var failed sdk.Failures
	b.mu.Lock()
	defer b.mu.Unlock()
	b.written = nil
	for _, name := range slices.SortedFunc(maps.Keys(state.Services), sdk.Name.Compare) {
		svc := state.Services[name]
		if len(svc.Cluster) == 0 {
			failed = append(failed, sdk.Failure{Name: name, Err: errors.New("a backend needs a server")})
			continue
		}
		for _, f := range svc.Frontends {
			served := sdk.Served{Name: name, Frontend: f}
			for _, ep := range svc.Endpoints(f.Policy) {
				served.Endpoints = append(served.Endpoints, ep.Addr)
			}
			b.written = append(b.written, served)
		}
	}
	fmt.Println(filepath.Join(setup.StateDir, "balancer.cfg"), how, "with", len(b.written), "frontends")
	if len(failed) > 0 {
		return failed // all other Services are served
	}
	return nil
}

func (b *balancer) list(context.Context) ([]sdk.Served, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.written), nil
}

// A function that serves the whole state, with options, a directory, a failure for each Service
// that it cannot serve, and a list with which a host verifies a swap.
func ExampleWholeOf() {
	b := &balancer{}
	d := sdk.WholeOf(sdk.Description{Name: "balancer", Version: "0.1.0", Features: sdk.Features},
		sdk.Parts{Configure: b.configure, Serve: b.serve, List: b.list})

	ctx := context.Background()
	if _, err := d.Configure(ctx, sdk.Setup{Options: []byte(`{"algorithm": "best"}`)}); err != nil {
		fmt.Println(err)
	}
	if _, err := d.Configure(ctx, sdk.Setup{Options: []byte(`{"algorithm": "leastconn"}`), StateDir: "/run/balancer"}); err != nil {
		fmt.Println(err)
	}
	empty := web
	empty.Name.Service, empty.Frontends, empty.Cluster, empty.Local = "empty", nil, nil, nil
	result, err := d.Sync(ctx, sdk.Update{To: 1, Full: true, Set: []sdk.Service{web, empty}})
	fmt.Println(result.Failed[0].Name, "failed:", result.Failed[0].Err, err)
	err = d.(sdk.Inspector).Inspect(ctx, func(s sdk.Served) error {
		fmt.Println("served:", s.Frontend, "to", s.Endpoints)
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// options.algorithm: there is no "best"; try: roundrobin or leastconn
	// /run/balancer/balancer.cfg leastconn with 2 frontends
	// ns1/empty:http/tcp4 failed: a backend needs a server <nil>
	// served: cluster-ip 172.30.0.41:80 to [10.180.0.1:8080 10.180.1.1:8080]
	// served: node-port *:30080 local to [10.180.0.1:8080]
}
