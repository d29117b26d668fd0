// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/pointsman/pointsman/host/track"
)

// ServiceCIDRs are in the API since Kubernetes 1.33. A server before that has none, and
// a role from before we asked for them does not let us read them: then it goes on
// without, as each ClusterIP that is in use is known anyway.

// askAgain is how long to go without what the server does not give.
const askAgain = time.Hour

func (k *KubeSource) ranges() *store {
	h := newStore("ServiceCIDRs",
		func(o any) { k.tracker.SetServiceCIDR(o.(*networkingv1.ServiceCIDR)) },
		func(key track.Key) { k.tracker.DeleteServiceCIDR(key.Name) })
	h.listed = true // only that says at once that there is nothing to be had
	return h
}

// mayNotReadRanges says so. It is no fault of the source: everything else is followed.
func (k *KubeSource) mayNotReadRanges(err error) {
	k.settings.Report(newLink("ServiceCIDRs", nil).down(err))
}

// ifAllowed lists and watches as lw does; of what the server does not have, or refuses, there are none until askAgain is over.
// forbidden is called, once, where we may not read them.
func ifAllowed(lw *cache.ListWatch, forbidden func(error)) *cache.ListWatch {
	var once sync.Once
	lacks := func(err error) bool {
		if apierrors.IsForbidden(err) {
			once.Do(func() { forbidden(err) })
		}
		return apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := lw.ListWithContextFunc(ctx, o)
			if lacks(err) {
				return &networkingv1.ServiceCIDRList{}, nil
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := lw.WatchFuncWithContext(ctx, o)
			if lacks(err) {
				return silence(askAgain), nil
			}
			return w, err
		},
	}
}

// silence returns a watch without events, which ends after a time.
func silence(long time.Duration) watch.Interface {
	w := watch.NewFake()
	time.AfterFunc(long, w.Stop)
	return w
}

// inLists makes a reflector ask for a list, not for a stream of everything.
type inLists struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported makes a reflector ask for a list.
func (inLists) IsWatchListSemanticsUnSupported() bool { return true }
