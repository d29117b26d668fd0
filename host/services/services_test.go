// SPDX-License-Identifier: Apache-2.0

package services

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/health"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// TestAddChanges lists frontends that differ, up to a number, and counts the rest.
func TestAddChanges(t *testing.T) {
	t.Parallel()
	s := sdk.Service{Name: sdk.Name{Namespace: "shop", Service: "web", Protocol: sdk.TCP, Family: sdk.IPv4},
		Frontends: []sdk.Frontend{{Kind: sdk.ClusterIP, Addr: netip.MustParseAddrPort("172.30.0.1:80")}}}
	var d admin.Diff
	addChanges(&d, s, []sdk.Served{{Name: s.Name, Frontend: s.Frontends[0]}})
	if len(d.Changes) != 0 {
		t.Errorf("as desired: %+v", d.Changes)
	}
	addChanges(&d, s, nil)
	if len(d.Changes) != 1 || !strings.HasSuffix(d.Changes[0].Step, " of shop/web/tcp4") || d.Changes[0].Details[0] != "it is missing" {
		t.Errorf("missing: %+v", d.Changes)
	}
	d.Changes = make([]admin.Change, maxChanges)
	if addChanges(&d, s, nil); d.More != 1 || len(d.Changes) != maxChanges {
		t.Errorf("one too many: %d changes and %d more", len(d.Changes), d.More)
	}
}

// TestState returns the most serious state of a Service's port.
func TestState(t *testing.T) {
	t.Parallel()
	tracker := track.New(nil)
	tracker.SetService(clusterService("phone", netip.MustParseAddr("172.30.0.1"), corev1.ProtocolSCTP))
	tracker.SetService(clusterService("web", netip.MustParseAddr("172.30.0.2"), corev1.ProtocolTCP))
	tracker.SetService(clusterService("zone", netip.MustParseAddr("172.30.0.2"), corev1.ProtocolTCP)) // as web has
	tracker.Synced()
	p := confirmed(tracker)
	stateIn := func(p Dataplane, service string) (string, string) {
		s, known := tracker.Service(track.Key{Namespace: "shop", Name: service})
		if !known {
			t.Fatalf("no Service %s", service)
		}
		got := portsOf(s, p).Ports[0]
		return got.State, got.Why
	}
	for service, want := range map[string]string{"phone": health.Withheld, "web": health.NoEndpoints, "zone": health.Conflict} {
		if got, why := stateIn(p, service); got != want {
			t.Errorf("%s is %s (%s), want %s", service, got, why, want)
		}
	}
	tracker.SetSlice(&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.1"}}}, Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(80))}},
	})
	if got, why := stateIn(p, "web"); got != health.NoEndpoints || !strings.Contains(why, `asks for port "" (tcp), and its EndpointSlices have only "http" (tcp)`) {
		t.Errorf("with a port of another name web is %s (%s)", got, why)
	}
	if got, _ := stateIn(fake{}, "web"); got != health.Pending {
		t.Errorf("without a session web is %s", got)
	}
	name := sdk.Name{Namespace: "shop", Service: "web", Protocol: sdk.TCP, Family: sdk.IPv4}
	for _, c := range []struct {
		err  error
		want string
	}{{errors.New("no room"), health.Failed}, {&sdk.Refusal{Why: "it will not"}, health.Refused}} {
		tracker.SetService(withPort(clusterService("web", netip.MustParseAddr("172.30.0.2"), corev1.ProtocolTCP), 80+int32(len(c.want))))
		u, ok := p.cursor.Next()
		if !ok {
			t.Fatal("there is nothing to send")
		}
		p.cursor.Ack(u.To, []sdk.Failure{{Name: name, Err: c.err}})
		if got, why := stateIn(p, "web"); got != c.want || !strings.Contains(why, c.err.Error()) {
			t.Errorf("after %v web is %s (%s)", c.err, got, why)
		}
	}
}

func withPort(svc *corev1.Service, port int32) *corev1.Service {
	svc.Spec.Ports[0].Port = port
	return svc
}

// TestUnknownService names the missing Service.
func TestUnknownService(t *testing.T) {
	t.Parallel()
	q := explained(t, sdk.Pods{})
	_, err := q.Service(t.Context(), "shop", "wbe")
	if e := new(admin.Error); !errors.As(err, &e) || e.Code != http.StatusNotFound || !strings.Contains(e.What, "shop/wbe") {
		t.Errorf("%v", err)
	}
	detail, err := q.Service(t.Context(), "shop", "web")
	if err != nil || detail.KernelUnread == "" || len(detail.Ports) != 1 || len(detail.Ports[0].Endpoints) != 2 || detail.Ports[0].AffinitySeconds != int(3*time.Hour/time.Second) {
		t.Errorf("%+v, %v", detail, err)
	}
	if all, unknown := q.Services(); unknown != "" || len(all) != 3 || all[0].Name != "near" || !slices.Equal(all[0].Ports[0].Policies, []string{"cluster", "local"}) {
		t.Errorf("%+v", all)
	}
}
