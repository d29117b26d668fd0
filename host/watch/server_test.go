// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// serverAt returns a client of a server at a revision, which lists with err, and its watches.
func serverAt(revision string, err error) (cache.ListerWatcherWithContext, *watch.FakeWatcher) {
	watches := watch.NewFake()
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.Limit != 1 && err != nil {
				return nil, err
			}
			if l, ok := ctx.Value(linkKey{}).(*link); ok {
				l.observe(ctx, &http.Response{StatusCode: http.StatusOK}, nil)
			}
			return &corev1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: revision}}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watches, nil },
	}, watches
}

// TestRestoredFromBackup checks that a list and a watch have expired if the revision of the server is lower, as after
// etcd was restored. Then a reflector lists everything again.
func TestRestoredFromBackup(t *testing.T) {
	for _, c := range []struct {
		since   string
		expired bool
	}{{"", false}, {"0", false}, {"500", false}, {"499", false}, {"1000", true}} {
		client, watches := serverAt("500", nil)
		l := lister(client, metav1.ListOptions{}, &link{kind: "Services"})
		_, listed := l.ListWithContextFunc(t.Context(), metav1.ListOptions{ResourceVersion: c.since})
		_, watched := l.WatchFuncWithContext(t.Context(), metav1.ListOptions{ResourceVersion: c.since})
		if apierrors.IsResourceExpired(listed) != c.expired || apierrors.IsResourceExpired(watched) != c.expired || watches.IsStopped() != c.expired {
			t.Errorf("since %s: list: %v, watch: %v, stopped: %t", c.since, listed, watched, watches.IsStopped())
		}
	}
}

// TestThrottledDespiteRevision checks that an answer to checkRevision alone does not count as success.
func TestThrottledDespiteRevision(t *testing.T) {
	client, _ := serverAt("9", apierrors.NewTimeoutError("later", 1))
	l := &link{kind: "Services"}
	var since []time.Time
	for range 2 {
		if _, err := lister(client, metav1.ListOptions{}, l).ListWithContextFunc(t.Context(), metav1.ListOptions{ResourceVersion: "7"}); err == nil {
			t.Error("list: no error")
		}
		since = append(since, l.failingSince)
	}
	if since[0].IsZero() || since[0] != since[1] {
		t.Errorf("fails since %v", since)
	}
}
