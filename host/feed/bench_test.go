// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// BenchmarkOneService is what the loop adds to the change of one Service, with a
// dataplane that has it at once: from the tracker to the acknowledgement.
func BenchmarkOneService(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			tracker := track.New(nil)
			for i := range n {
				tracker.SetService(service(i, 80))
			}
			tracker.Synced()
			acked := make(chan Acked, 1)
			f, err := New(clock.RealClock{}, tracker.Cursor(sdk.Description{Features: sdk.Features}), ready{}, Settings{
				Retry: time.Second, Period: time.Minute, Hooks: Hooks{Acked: func(a Acked) { acked <- a }},
			})
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			ran := make(chan error, 1)
			go func() { ran <- f.Run(ctx) }()
			<-acked
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				tracker.SetService(service(7, int32(81+i%2)))
				if a := <-acked; len(a.Update.Set) != 1 {
					b.Fatalf("an update of %d Services", len(a.Update.Set))
				}
			}
			cancel()
			<-ran
		})
	}
}

// A ready dataplane follows every update at once.
type ready struct{}

func (ready) Sync(context.Context, sdk.Update) (sdk.Result, error) { return sdk.Result{}, nil }

// service is Service number i at a port.
func service(i int, port int32) *corev1.Service {
	addr := fmt.Sprintf("172.16.%d.%d", i/250, 1+i%250)
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("service-%d", i)},
		Spec: corev1.ServiceSpec{
			ClusterIP: addr, ClusterIPs: []string{addr},
			Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: port}},
		},
	}
}
