// SPDX-License-Identifier: Apache-2.0

// Package actor is a dataplane that behaves as its options say, for the tests of both ends of the wire: it answers,
// hangs, crashes, prints or fails. It writes nothing to the kernel. Start reading at Order.
package actor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"syscall"

	"github.com/pointsman/pointsman/sdk"
)

// Description returns the description before Configure.
func Description() sdk.Description {
	return sdk.Description{Name: "subject", Version: "0.0.1", Features: sdk.Features, Options: []byte(`{"type":"object"}`)}
}

// A Dataplane behaves as its options say.
type Dataplane struct {
	setup sdk.Setup
	order Order

	Updates []sdk.Update // of the calls of Sync
}

// An Order is the options of a Dataplane.
type Order struct {
	Hang   bool   // Sync never returns
	Wait   bool   // Sync returns when its context ends
	Signal int    // Sync sends itself this signal first; zero: none
	Panic  string // Sync panics
	Fatal  string // Sync calls log.Fatal
	Print  int    // bytes for Sync to print with fmt.Println
	Log    int    // lines for Sync to log
	Raw    bool   // Sync prints text to the stderr that package log has kept
	Refuse bool   // Configure refuses
	Resync bool   // Sync answers ErrResync
	Digest bool   // Sync fails with the digest of the update
	Schema string // the options in the description that Configure returns
	Big    int    // bytes of options in the description that Configure returns
}

// Options returns o as it is in Setup.
func (o Order) Options() []byte {
	out, err := json.Marshal(o)
	if err != nil {
		panic(err) // strings and numbers
	}
	return out
}

// Configure stores its order, and may change the description.
func (d *Dataplane) Configure(_ context.Context, setup sdk.Setup) (sdk.Description, error) {
	d.setup, d.order = setup, Order{}
	if len(setup.Options) > 0 {
		if err := json.Unmarshal(setup.Options, &d.order); err != nil {
			return sdk.Description{}, err
		}
	}
	if d.order.Refuse {
		return sdk.Description{}, &sdk.Refusal{Field: "options.refuse", Why: "it was asked for", Try: "asking for less"}
	}
	here := Description()
	here.Features = here.Features[:1]
	if d.order.Big > 0 {
		here.Options = []byte(`"` + strings.Repeat("x", d.order.Big) + `"`)
	}
	if d.order.Schema != "" {
		here.Options = []byte(d.order.Schema)
	}
	return here, nil
}

func signalSelf(signal int) {
	if signal == 0 {
		return
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		panic(err) // this process exists
	}
	if err := self.Signal(syscall.Signal(signal)); err != nil {
		panic(err)
	}
}

// Digest returns a digest of everything in u.
func Digest(u sdk.Update) string {
	h := sha256.New()
	for _, svc := range u.Set {
		fmt.Fprintf(h, "%+v\n", svc)
	}
	u.Set, u.Node = nil, nil
	fmt.Fprintf(h, "%+v", u)
	return hex.EncodeToString(h.Sum(nil))
}

// Sync does what its order says.
func (d *Dataplane) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	switch {
	case d.order.Hang:
		select {}
	case d.order.Wait:
		<-ctx.Done()
		signalSelf(d.order.Signal)
		return sdk.Result{}, ctx.Err()
	case d.order.Panic != "":
		panic(d.order.Panic)
	case d.order.Fatal != "":
		log.Fatal(d.order.Fatal)
	case d.order.Resync:
		return sdk.Result{}, fmt.Errorf("lost my place: %w", sdk.ErrResync)
	}
	for printed := 0; printed < d.order.Print; printed += 64 {
		fmt.Println(strings.Repeat("p", 63))
	}
	for i := range d.order.Log {
		d.setup.Log.Info("a line", "n", i)
	}
	if d.order.Raw {
		log.Print(`{"@message":5}`)
		syscall.Write(2, []byte("\xff\xfe rubbish\n"))
	}
	d.Updates = append(d.Updates, u)
	var result sdk.Result
	if d.order.Digest {
		return result, errors.New(Digest(u))
	}
	for _, svc := range u.Set {
		if why, fails := strings.CutPrefix(svc.Name.Port, "fail: "); fails {
			failure := sdk.Failure{Name: svc.Name}
			if why != "" {
				failure.Err = errors.New(why)
			}
			result.Failed = append(result.Failed, failure)
		}
	}
	return result, nil
}

// SetRole accepts every role.
func (d *Dataplane) SetRole(context.Context, sdk.Role) error { return nil }

// Cleanup names what it would remove.
func (d *Dataplane) Cleanup(_ context.Context, l sdk.Leftovers) ([]string, error) {
	if l.KubeProxy {
		return []string{"chain A", "chain KUBE"}, nil
	}
	return []string{"chain A"}, nil
}

// Report always returns the same.
func (d *Dataplane) Report() sdk.Report {
	took := sdk.NewHistogram("h", map[string]string{"c": "d"}, 1, 2)
	took.Observe(1.5)
	return sdk.Report{
		Progress: 7, Waiting: "the lock", SwapImpact: "2 flows", Notes: []string{"a chain drops"}, Histograms: []sdk.Histogram{took},
		Samples: []sdk.Sample{{Name: "m", Labels: map[string]string{"a": "b"}, Value: 1.5}},
	}
}
