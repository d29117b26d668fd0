// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	noticeInterval   = time.Minute      // between two notices of a link with the same fault
	throttleGrace    = 30 * time.Second // how long the server may ask the host to wait before that is a fault
	optionalInterval = time.Hour        // between requests for an optional kind that the server does not have or forbids to read
)

// A link reports when the API server stops answering requests for one kind of object, and when it answers again.
type link struct {
	kind      string
	emptyList runtime.Object // if the kind is optional: the list to use if the server does not have the kind or denies access; otherwise nil
	report    func(track.Notice)
	once      sync.Once

	mu           sync.Mutex // guards the fields below
	fault        string     // empty if the server answers
	lastNotice   time.Time  // time of the last notice about fault
	failingSince time.Time  // time of the first failed request after the last successful one; zero if requests succeed
}

// linkKey is the key of a request's link in its context.
type linkKey struct{}

// withLink returns a context for requests whose results the link records.
func (l *link) withLink(ctx context.Context) context.Context {
	return context.WithValue(ctx, linkKey{}, l)
}

// observe records the response to a request. The caller of the request records other error statuses, because only the
// caller reads their text.
func (l *link) observe(ctx context.Context, answer *http.Response, err error) {
	switch {
	case err != nil || answer.StatusCode < http.StatusBadRequest:
		_ = l.note(ctx, err)
	case answer.StatusCode == http.StatusTooManyRequests: // client-go retries it before the caller sees it
		_ = l.note(ctx, apierrors.NewTooManyRequests("the server asks clients to wait", 1))
	}
}

// currentFault returns why the server does not answer, or "" if it answers.
func (l *link) currentFault() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fault
}

// skipOptional reports whether err can be ignored: the kind is optional, and the server does not have it or forbids to
// read it. The first time that reading is forbidden, skipOptional reports that.
func (l *link) skipOptional(ctx context.Context, err error) bool {
	forbidden := apierrors.IsForbidden(err)
	if l.emptyList == nil || !forbidden && !apierrors.IsNotFound(err) {
		return false
	}
	if forbidden {
		l.once.Do(func() { l.report(l.faultNotice(err)) })
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
			n = track.Notice{Reason: SourceBack, Object: l.kind, Message: fmt.Sprintf("the API server answers for %s again, after %s", l.kind, now.Sub(l.failingSince).Round(time.Second))}
		}
		l.fault, l.lastNotice, l.failingSince = "", time.Time{}, time.Time{}
		return n
	}
	if l.failingSince.IsZero() {
		l.failingSince = now
	}
	// A server often expires old watches or asks clients to wait, so these errors are a fault only if they last.
	routine := apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err)
	if routine && now.Sub(l.failingSince) < throttleGrace {
		return n
	}
	n = l.faultNotice(err)
	l.fault = n.Message
	if now.Sub(l.lastNotice) < noticeInterval {
		return track.Notice{}
	}
	l.lastNotice = now
	return n
}

// faultNotice returns the notice about a fault.
func (l *link) faultNotice(err error) track.Notice {
	n := track.Notice{Warning: true, Reason: SourceForbidden, Object: l.kind}
	switch {
	case apierrors.IsUnauthorized(err):
		n.Message = fmt.Sprintf("the API server rejects the credentials (%v), so changes of %s are not seen; what is served stays as it is: check the kubeconfig's credentials", err, l.kind)
	case apierrors.IsForbidden(err):
		n.Message = fmt.Sprintf("reading %s is forbidden (%v); what is served stays as it is: grant list and watch, as %s does", l.kind, err, RoleFile)
	default:
		n.Reason = SourceUnreachable
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the URL
		}
		n.Message = fmt.Sprintf("list and watch %s: %v; what is served stays as it is", l.kind, err)
	}
	return n
}

// lister returns a client that lists and watches the objects in selection, and records the results on l.
func lister(client cache.ListerWatcherWithContext, selection metav1.ListOptions, l *link) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (list runtime.Object, err error) {
			o.LabelSelector, o.FieldSelector = selection.LabelSelector, selection.FieldSelector
			if err = checkRevision(ctx, client, selection, o.ResourceVersion); err == nil {
				list, err = client.ListWithContext(l.withLink(ctx), o)
			}
			if l.skipOptional(ctx, err) {
				return l.emptyList, nil
			}
			return list, l.note(ctx, err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector, o.FieldSelector = selection.LabelSelector, selection.FieldSelector
			w, err := client.WatchWithContext(l.withLink(ctx), o)
			if err == nil { // check after the watch has begun: a restore of the server ends all watches
				if err = checkRevision(ctx, client, selection, o.ResourceVersion); err != nil {
					w.Stop()
				}
			}
			if o.SendInitialEvents == nil && l.skipOptional(ctx, err) { // otherwise the reflector requests a list next
				none := watch.NewFake()
				time.AfterFunc(optionalInterval, none.Stop)
				return none, nil
			}
			return w, l.note(ctx, err)
		},
	}
}

// checkRevision returns an error that makes a reflector list everything again if the server's revision is lower than
// since. After etcd was restored from a backup, a watch from since would be silent until the revision has grown to
// since again (kubernetes#107457). The result of this request is not recorded on a link, because other requests may
// fail although it succeeds.
func checkRevision(ctx context.Context, client cache.ListerWithContext, selection metav1.ListOptions, since string) error {
	if since == "" || since == "0" {
		return nil // any state is new
	}
	selection.Limit = 1
	list, err := client.ListWithContext(ctx, selection)
	if err != nil {
		return err
	}
	now, _ := meta.NewAccessor().ResourceVersion(list) // each list has one
	if order, err := resourceversion.CompareResourceVersion(now, since); err == nil && order < 0 {
		return apierrors.NewResourceExpired(fmt.Sprintf("the server is at revision %s, and was at %s", now, since))
	}
	return nil
}
