// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pointsman/pointsman/host/track"
)

// A Connection says how the API server is reached.
type Connection struct {
	Kubeconfig string  // a file; empty: the pod's own service account
	QPS        float64 // requests each second,
	Burst      int     // and at once
	UserAgent  string

	Observe func(Request) // called for every request
}

// A Request is one that was made of the API server.
type Request struct {
	Method, Host string
	Code         string        // of the answer, or "<error>"
	Took         time.Duration // until the answer began
	Date         time.Time     // of the server when it answered; zero: it did not say
}

// Connect returns a client of the API server. It is not an error that the server does
// not answer yet.
func Connect(c Connection) (*Client, error) {
	config, err := load(c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = float32(c.QPS), c.Burst
	config.UserAgent = c.UserAgent
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.WarningHandler = rest.NoWarnings{}
	config.Dial = new(dialer).dial
	if token := config.BearerToken; token != "" && config.BearerTokenFile == "" {
		config.BearerToken = "" // client-go would keep the first one
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return &bearer{next: next, kubeconfig: c.Kubeconfig, token: token}
		})
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return observer{next, c.Observe} })
	client, err := newClient(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	return client, nil
}

func load(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("reading kubeconfig %s: %w", kubeconfig, err)
		}
		return config, nil
	}
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, errors.New("source.kubernetes: there is no pod's service account here: set source.kubernetes.kubeconfig, or source.files to serve from manifests")
	}
	if err != nil {
		return nil, fmt.Errorf("source.kubernetes: reading the pod's service account: %w", err)
	}
	return config, nil
}

// A bearer sends the token of a kubeconfig, as the file has it when a request is made.
type bearer struct {
	next       http.RoundTripper
	kubeconfig string

	mu    sync.Mutex // guards token
	token string     // the last one that could be read
}

func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	b.mu.Lock()
	if now, err := load(b.kubeconfig); err == nil && now.BearerToken != "" {
		b.token = now.BearerToken
	}
	token := b.token
	b.mu.Unlock()
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return b.next.RoundTrip(r)
}

// A dialer dials the addresses of a host in turn, so that the connection after one to a server that
// does not answer is one to another server, if there is one.
type dialer struct {
	lookup func(context.Context, string) ([]string, error) // nil: the resolver's
	dialed atomic.Uint32
}

func (d *dialer) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	lookup := d.lookup
	if lookup == nil {
		lookup = net.DefaultResolver.LookupHost
	}
	addrs, err := lookup(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	slices.Sort(addrs)
	addrs = slices.Compact(addrs)
	each := net.Dialer{Timeout: 30 * time.Second / time.Duration(len(addrs)), KeepAlive: 30 * time.Second}
	for range addrs {
		addr := addrs[int(d.dialed.Add(1)-1)%len(addrs)]
		if conn, err = each.DialContext(ctx, network, net.JoinHostPort(addr, port)); err == nil {
			break
		}
	}
	return conn, err
}

// An observer calls tell for every request that goes through it.
type observer struct {
	next http.RoundTripper
	tell func(Request)
}

func (o observer) RoundTrip(r *http.Request) (*http.Response, error) {
	start := time.Now()
	answer, err := o.next.RoundTrip(r)
	told := Request{Method: r.Method, Host: r.URL.Host, Code: "<error>", Took: time.Since(start)}
	if err == nil {
		told.Code = strconv.Itoa(answer.StatusCode)
		told.Date, _ = http.ParseTime(answer.Header.Get("Date"))
	}
	o.tell(told)
	if l, ok := r.Context().Value(linkOf{}).(*link); ok {
		l.try(err)
		if err == nil {
			answer.Body = body{answer.Body, r.Context(), l}
		}
	}
	return answer, err
}

// linkOf is what a request's context has its link by.
type linkOf struct{}

// A body notes on a link what is heard of an answer, and that the connection is lost before its end: on
// one that is silent for 30 s, HTTP/2 asks for a sign of life, and waits 15 s for it.
type body struct {
	io.ReadCloser
	ctx  context.Context
	link *link
}

func (b body) Read(p []byte) (n int, err error) {
	if n, err = b.ReadCloser.Read(p); n > 0 {
		b.link.try(nil)
	}
	if utilnet.IsHTTP2ConnectionLost(err) {
		_ = b.link.note(b.ctx, err)
	}
	return n, err
}

// The reasons of a link's notices.
const (
	SourceUnreachable = "SourceUnreachable" // the API server does not answer
	SourceForbidden   = "SourceForbidden"   // it does not let us read
	SourceBack        = "SourceBack"        // it answers again
)

// sayAgain is the time between two notices of a link that stays down.
const sayAgain = time.Minute

// A link reports once that the API server no longer answers for one kind of object,
// and once that it answers again.
type link struct {
	kind    string
	without runtime.Object // the empty list, where the host does without the kind; nil: it does not
	report  func(track.Notice)
	once    sync.Once

	mu    sync.Mutex // guards what follows
	fault string     // empty: it answers
	since time.Time  // of the fault
	said  time.Time
	put   time.Time // since when the server puts us off; zero: it does not
	heard time.Time // last, of the server; zero: never
	tried error     // the last request's
}

// try notes that something was heard of the server, or with what a request failed.
func (l *link) try(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tried = err; err == nil {
		l.heard = time.Now()
	}
}

// unheard returns what the last request failed with. client-go says only of some that they failed.
func (l *link) unheard() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tried
}

// now returns why the server does not answer now; empty: it answers.
func (l *link) now() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fault
}

// spared reports whether err is that the server does not have the kind, or keeps it from us,
// where the host does without. Once, it says that we may not read it: that is no fault of the
// source, as everything else is followed.
func (l *link) spared(ctx context.Context, err error) bool {
	forbidden := apierrors.IsForbidden(err)
	if l.without == nil || !forbidden && !apierrors.IsNotFound(err) {
		return false
	}
	if forbidden {
		l.once.Do(func() { l.report(l.down(err, time.Now())) })
	}
	_ = l.note(ctx, nil)
	return true
}

// note notes how a request went: it returns err.
func (l *link) note(ctx context.Context, err error) error {
	if ctx.Err() != nil || l.putOff(err, time.Now()) {
		return err
	}
	if notice, say := l.noticeOf(err, time.Now()); say {
		l.report(notice)
	}
	return err
}

// longPutOff is how long a server may put us off until that is a fault.
const longPutOff = 30 * time.Second

// putOff reports whether err is one with which the server puts us off, and it has done so for less than
// longPutOff since a request last succeeded.
func (l *link) putOff(err error, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.put = time.Time{}
	case l.put.IsZero():
		l.put = now
	}
	return isRoutine(err) && now.Sub(l.put) < longPutOff
}

// isRoutine reports whether err belongs to the ordinary course of a watch: one that is
// too old to be continued, or a server that asks us to wait.
func isRoutine(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err)
}

// noticeOf decides what to report of a request that ended with err.
func (l *link) noticeOf(err error, now time.Time) (n track.Notice, say bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		n, say = l.back(now), l.fault != ""
		l.fault, l.said = "", time.Time{}
		return n, say
	}
	n = l.down(err, now)
	if l.fault == "" {
		l.since = now
	}
	l.fault = n.Message
	if now.Sub(l.said) < sayAgain {
		return track.Notice{}, false
	}
	l.said = now
	return n, true
}

func (l *link) back(now time.Time) track.Notice {
	return track.Notice{Reason: SourceBack, Object: l.kind, Message: fmt.Sprintf("%s are heard of again, after %s", l.kind, now.Sub(l.since).Round(time.Second))}
}

func (l *link) down(err error, now time.Time) track.Notice {
	n := track.Notice{Warning: true, Reason: SourceForbidden, Object: l.kind}
	switch {
	case apierrors.IsUnauthorized(err):
		n.Message = fmt.Sprintf("the API server does not know us, so it tells nothing of %s (%v); what is served stays as it is: check the kubeconfig's credentials", l.kind, err)
	case apierrors.IsForbidden(err):
		n.Message = fmt.Sprintf("we may not read %s (%v); what is served stays as it is: grant list and watch, as configs/kubernetes/rbac.yaml does", l.kind, err)
	default:
		n.Reason = SourceUnreachable
		n.Message = fmt.Sprintf("following %s: %s; what is served stays as it is", l.kind, brief(err))
		if !l.heard.IsZero() {
			n.Message += fmt.Sprintf("; last heard %d s ago", int(now.Sub(l.heard).Seconds()))
		}
	}
	return n
}

// brief is err without what differs each time: the URL's options, and the port
// that a connection came from.
func brief(err error) string {
	var op *net.OpError
	if errors.As(err, &op) && op.Addr != nil {
		return fmt.Sprintf("%s %s: %v", op.Op, op.Addr, op.Err)
	}
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err.Error()
	}
	return err.Error()
}

// lister lists and watches those of a kind that only selects, and has l note how that goes.
// Where the host does without the kind, there are none until askAgain is over.
func lister[L runtime.Object](client typed[L], only metav1.ListOptions, l *link) *cache.ListWatch {
	narrow := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector, o.FieldSelector = only.LabelSelector, only.FieldSelector
		return o
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			ctx = context.WithValue(ctx, linkOf{}, l)
			var list L
			err := wentBack(ctx, client, only, o.ResourceVersion)
			if err == nil {
				list, err = client.List(ctx, narrow(o))
			}
			if l.spared(ctx, err) {
				return l.without, nil
			}
			return list, l.note(ctx, err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			ctx = context.WithValue(ctx, linkOf{}, l)
			w, err := client.Watch(ctx, narrow(o))
			if err == nil {
				// Only now: no server is restored without an end of its watches.
				if err = l.unheard(); err == nil {
					err = wentBack(ctx, client, only, o.ResourceVersion)
				}
				if err != nil {
					w.Stop()
				}
			}
			if l.spared(ctx, err) {
				return silence(askAgain), nil
			}
			if l.note(ctx, err) != nil {
				return nil, err
			}
			return w, nil
		},
	}
}

// wentBack returns an error by which a reflector lists everything again, if the server is not as far as
// since. After etcd was restored from a backup, a watch that goes on from there would be silent until as
// much was written again (kubernetes#107457).
func wentBack[L runtime.Object](ctx context.Context, client typed[L], only metav1.ListOptions, since string) error {
	ours, err := strconv.ParseUint(since, 10, 64)
	if err != nil || ours == 0 {
		return nil // any state is new to us
	}
	only.Limit = 1
	list, err := client.List(ctx, only)
	if err != nil {
		return err
	}
	is, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	if now, err := strconv.ParseUint(is.GetResourceVersion(), 10, 64); err == nil && now < ours {
		return apierrors.NewResourceExpired(fmt.Sprintf("the server is at revision %d, and was at %d", now, ours))
	}
	return nil
}

// askAgain is how long to go without what the server does not give.
const askAgain = time.Hour

// silence returns a watch without events, which ends after a time.
func silence(long time.Duration) watch.Interface {
	w := watch.NewFake()
	time.AfterFunc(long, w.Stop)
	return w
}
