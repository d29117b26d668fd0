// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/pointsman/pointsman/host/track"
)

// The reasons of the notices of a link.
const (
	SourceUnreachable = "SourceUnreachable" // the API server does not answer (W008)
	SourceForbidden   = "SourceForbidden"   // the API server does not let the host read (W008)
	SourceBack        = "SourceBack"        // the API server answers again
)

const (
	sayAgain   = time.Minute      // between two notices of a link that stays down
	longPutOff = 30 * time.Second // for which a server may ask the host to wait before that is a fault
	askAgain   = time.Hour        // after which the host requests a kind again that it can do without
)

// A link reports when the API server stops answering requests for one kind of object, and when it answers again.
type link struct {
	kind    string
	without runtime.Object // the empty list, if the host can do without the kind
	report  func(track.Notice)
	once    sync.Once
	heard   atomic.Int64 // Unix time of the last byte from the server; 0: never

	mu    sync.Mutex // guards the following fields
	fault string     // empty: the server answers
	said  time.Time  // of the last notice of the fault
	fails time.Time  // of the first failed request since the last good one; zero: requests succeed
}

// linkKey is the key of a request's link in its context.
type linkKey struct{}

// in returns a context whose requests are noted by the link.
func (l *link) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, linkKey{}, l)
}

// observe notes the answer to a request. Other error statuses are noted by the caller, who can read their text.
func (l *link) observe(ctx context.Context, answer *http.Response, err error) {
	if err == nil {
		l.heard.Store(time.Now().Unix())
		answer.Body = body{answer.Body, ctx, l}
	}
	switch {
	case err != nil || answer.StatusCode < http.StatusBadRequest:
		_ = l.note(ctx, err)
	case answer.StatusCode == http.StatusTooManyRequests: // client-go retries it before the caller sees it
		_ = l.note(ctx, apierrors.NewTooManyRequests("the server asks clients to wait", 1))
	}
}

// A body notes on a link that data was received, or that the connection was lost: HTTP/2 sends a ping after 30 s without
// data, and waits 15 s for the answer.
type body struct {
	io.ReadCloser
	ctx  context.Context
	link *link
}

func (b body) Read(p []byte) (n int, err error) {
	if n, err = b.ReadCloser.Read(p); n > 0 {
		b.link.heard.Store(time.Now().Unix())
	}
	if utilnet.IsHTTP2ConnectionLost(err) {
		_ = b.link.note(b.ctx, err)
	}
	return n, err
}

// now returns why the server does not answer, or nothing if it answers.
func (l *link) now() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fault
}

// spares reports whether the host can do without the kind, and err means that the server does not have the kind or that
// reading it is forbidden. That is no fault; the latter is reported once.
func (l *link) spares(ctx context.Context, err error) bool {
	forbidden := apierrors.IsForbidden(err)
	if l.without == nil || !forbidden && !apierrors.IsNotFound(err) {
		return false
	}
	if forbidden {
		l.once.Do(func() { l.report(l.down(err)) })
	}
	_ = l.note(ctx, nil)
	return true
}

// note records the result of a request, and returns err.
func (l *link) note(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	if n := l.update(err, time.Now()); n.Reason != "" {
		l.report(n)
	}
	return err
}

// update records the result of a request, and returns the notice to report, if it has a Reason.
func (l *link) update(err error, now time.Time) (n track.Notice) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		if l.fault != "" {
			n = track.Notice{Reason: SourceBack, Object: l.kind, Message: fmt.Sprintf("the API server answers for %s again, after %s", l.kind, now.Sub(l.fails).Round(time.Second))}
		}
		l.fault, l.said, l.fails = "", time.Time{}, time.Time{}
		return n
	}
	if l.fails.IsZero() {
		l.fails = now
	}
	// A watch that is too old, or a server that asks the host to wait, is routine for a while.
	routine := apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err)
	if routine && now.Sub(l.fails) < longPutOff {
		return n
	}
	n = l.down(err)
	l.fault = n.Message
	if now.Sub(l.said) < sayAgain {
		return track.Notice{}
	}
	l.said = now
	return n
}

func (l *link) down(err error) track.Notice {
	n := track.Notice{Warning: true, Reason: SourceForbidden, Object: l.kind}
	switch {
	case apierrors.IsUnauthorized(err):
		n.Message = fmt.Sprintf("the API server rejects the credentials (%v), so changes of %s are not seen; what is served stays as it is: check the kubeconfig's credentials", err, l.kind)
	case apierrors.IsForbidden(err):
		n.Message = fmt.Sprintf("reading %s is forbidden (%v); what is served stays as it is: grant list and watch, as %s does", l.kind, err, RoleFile)
	default:
		n.Reason = SourceUnreachable
		n.Message = fmt.Sprintf("list and watch %s: %s; what is served stays as it is", l.kind, brief(err))
		if heard := l.heard.Load(); heard > 0 {
			n.Message += fmt.Sprintf("; last heard %d s ago", time.Now().Unix()-heard)
		}
	}
	return n
}

// brief returns err without the URL of the request.
func brief(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return err.Error()
}

// lister lists and watches the objects that only selects, and notes the results on l.
func lister(client cache.ListerWatcherWithContext, only metav1.ListOptions, l *link) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (list runtime.Object, err error) {
			o.LabelSelector, o.FieldSelector = only.LabelSelector, only.FieldSelector
			if err = checkRevision(ctx, client, only, o.ResourceVersion); err == nil {
				list, err = client.ListWithContext(l.in(ctx), o)
			}
			if l.spares(ctx, err) {
				return l.without, nil
			}
			return list, l.note(ctx, err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector, o.FieldSelector = only.LabelSelector, only.FieldSelector
			w, err := client.WatchWithContext(l.in(ctx), o)
			if err == nil { // after the watch has begun, because all watches end when a server is restored
				if err = checkRevision(ctx, client, only, o.ResourceVersion); err != nil {
					w.Stop()
				}
			}
			if o.SendInitialEvents == nil && l.spares(ctx, err) { // else the reflector asks for a list next
				none := watch.NewFake()
				time.AfterFunc(askAgain, none.Stop)
				return none, nil
			}
			return w, l.note(ctx, err)
		},
	}
}

// checkRevision returns an error that makes a reflector list everything again if the server's revision is lower than
// since. After etcd was restored from a backup, a watch from since would be silent until the revision has grown to since
// again (kubernetes#107457). No link notes this request, because its success does not mean that others succeed.
func checkRevision(ctx context.Context, client cache.ListerWithContext, only metav1.ListOptions, since string) error {
	if since == "" || since == "0" {
		return nil // any state is new
	}
	only.Limit = 1
	list, err := client.ListWithContext(ctx, only)
	if err != nil {
		return err
	}
	now, _ := meta.NewAccessor().ResourceVersion(list) // each list has one
	if order, err := resourceversion.CompareResourceVersion(now, since); err == nil && order < 0 {
		return apierrors.NewResourceExpired(fmt.Sprintf("the server is at revision %s, and was at %s", now, since))
	}
	return nil
}
