// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/reconcile"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// This file is a complete example of a mode. Its kernel (kernel_linux_test.go) maps the name of each Service to the Service
// in JSON, and has one fixed entry, without a name, for the node and the role. A real mode has an entry for each frontend
// and each endpoint instead.

// A piece is a Service in JSON.
type piece string

func (p piece) Equal(q piece) bool { return p == q }

// A mode serves both IP families with one kernel.
type mode struct {
	reconcile.Family[piece, sdk.Name, string]
	node sdk.Node
}

func (m *mode) Serves(sdk.Family) bool { return true }

func (m *mode) Node(n sdk.Node) error {
	m.node = n
	return m.Family.Node(n)
}

// The kernel tracks no connections.
func (m *mode) Forget(sdk.Family, []sdk.Service, func()) (int, error)      { return 0, nil }
func (m *mode) ForgetEarly(sdk.Family, []sdk.Service, func()) (int, error) { return 0, nil }
func (m *mode) Flows(map[sdk.Name]sdk.Service, bool) (int, error)          { return 0, nil }

func (m *mode) Want(svc sdk.Service) (piece, error) {
	if err := svc.Check(); err != nil {
		return "", &sdk.Refusal{Field: "service", Why: err.Error()}
	}
	text, err := json.Marshal(svc)
	return piece(text), err
}

func (m *mode) Entries(name sdk.Name, p piece, add func(sdk.Name, string)) {
	if p != "" {
		add(name, string(p))
	}
}

// A fixed is the value of the fixed entry.
type fixed struct {
	Role sdk.Role
	Node sdk.Node
}

func (m *mode) Fixed(role sdk.Role, _ map[string]bool) map[sdk.Name]string {
	text, _ := json.Marshal(fixed{role, m.node}) // never fails for these types
	return map[sdk.Name]string{{}: string(text)}
}

func (m *mode) Kind(name sdk.Name) reconcile.Kind {
	if name == (sdk.Name{}) {
		return reconcile.Kind{Label: "role"}
	}
	return reconcile.Kind{Label: "services", Add: 1, Remove: 1}
}

func (m *mode) Parse(listed map[sdk.Name]string) (map[sdk.Name]piece, sdk.Role) {
	var f fixed
	pieces := make(map[sdk.Name]piece)
	for name, text := range listed {
		if name == (sdk.Name{}) {
			_ = json.Unmarshal([]byte(text), &f) // if the entry is damaged, the role is unknown
		} else {
			pieces[name] = piece(text)
		}
	}
	return pieces, max(f.Role, sdk.Standby)
}

// A dataplane implements sdk.Dataplane with the mode.
type dataplane struct {
	*frame.Dataplane[piece]
	kernel *kernel
}

var description = sdk.Description{Name: "example", Version: "1", Features: sdk.Features, Limits: []sdk.Limit{}}

func newDataplane(k *kernel, dir string) *dataplane {
	return &dataplane{frame.New(frame.Mode[piece]{
		Description: description,
		Open: func(context.Context, sdk.Setup, frame.Env) (frame.Session[piece], error) {
			m := &mode{}
			m.Family = reconcile.NewFamily(sdk.IPv4, m, &handle{kernel: k})
			return frame.Session[piece]{Families: []frame.Family[piece]{m}}, nil
		},
		Sweep: func(_ context.Context, l sdk.Leftovers, _ frame.Env) (removed []string, err error) {
			k.mu.Lock()
			defer k.mu.Unlock()
			for name := range k.entries {
				removed = append(removed, "remove "+name.String())
			}
			if !l.DryRun {
				k.entries, k.commits = make(map[sdk.Name]string), k.commits+1
			}
			return removed, nil
		},
	}, dir), k}
}

// TestExampleConforms runs the conformance suite, with packets that follow the entries of the kernel.
func TestExampleConforms(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), t.TempDir()
	s := sdktest.InProcess(description, func() sdk.Dataplane { return newDataplane(k, dir) })
	s.Testbed = sdktest.Said(func(sdk.Dataplane) sdktest.Sender { return k })
	s.Foreign = func(context.Context) (string, error) { return "nothing", nil }
	s.Disturb = func(context.Context) error {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.entries, k.commits = make(map[sdk.Name]string), k.commits+1
		return nil
	}
	sdktest.Conform(t, s)
}
