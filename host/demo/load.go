// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	timeout = 5 * time.Second       // a request that took longer has failed
	pause   = 25 * time.Millisecond // between an answer and the same caller's next request
	work    = 15 * time.Millisecond // a server takes for an answer, so that there is always a request in flight
)

// A load sends requests to every Service, each over a connection of its own, and
// tries none a second time. It keeps what became of them.
type load struct {
	network network
	client  *http.Client

	mu      sync.Mutex // guards what follows
	answers []answer   // in the order in which they ended
	gap     gap
}

func newLoad(n network) *load {
	return &load{
		network: n,
		client:  &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: timeout},
	}
}

// start starts the callers. They end, each after the request it is at, with stop,
// which waits for them.
func (l *load) start() (stop func()) {
	var stopping atomic.Bool
	var callers sync.WaitGroup
	for _, svc := range services() {
		for range svc.callers {
			callers.Go(func() {
				for !stopping.Load() {
					l.add(l.request(svc))
					time.Sleep(pause)
				}
			})
		}
	}
	return func() {
		stopping.Store(true)
		callers.Wait()
	}
}

// request sends one request, and waits for its answer.
func (l *load) request(svc service) answer {
	a := answer{service: svc.name, began: time.Now()}
	addr := l.network.at(svc.addr).String()
	if svc.network == "udp" {
		a.from, a.err = exchange(addr)
	} else {
		a.from, a.err = l.get(addr)
	}
	if a.err == nil && !svc.has(a.from) {
		a.err = fmt.Errorf("another program answers at %s: %.40q", addr, a.from)
	}
	a.ended = time.Now()
	return a
}

func (l *load) get(addr string) (string, error) {
	resp, err := l.client.Get("http://" + addr + "/")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 512))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(body), err
}

// exchange sends a packet and waits for one back.
func exchange(addr string) (string, error) {
	conn, err := net.Dial("udp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(timeout))
	if _, err := conn.Write([]byte("what time is it?")); err != nil {
		return "", err
	}
	packet := make([]byte, 512)
	n, err := conn.Read(packet)
	if err != nil {
		return "", fmt.Errorf("wait for the answer: %w", err)
	}
	return string(packet[:n]), nil
}

// An answer is what became of one request.
type answer struct {
	service      string
	from         string // the endpoint's name
	began, ended time.Time
	err          error // nil: it was answered
}

// A gap is the time in which nothing serves because the plugin was killed.
type gap struct {
	killed time.Time            // just before; zero: it was not
	gone   time.Time            // the process was seen to be gone
	back   map[string]time.Time // by Service: when the first request that was sent after that had its answer
}

// explains reports whether the gap is why a is a failure: it was in flight when
// the plugin was killed, or was sent before the Service was back.
func (g gap) explains(a answer) bool {
	if g.killed.IsZero() || a.ended.Before(g.killed) {
		return false
	}
	back, ok := g.back[a.service]
	return !ok || a.began.Before(back)
}

// A sum is what requests came to.
type sum struct {
	requests int // but for those that the gap explains
	failed   []answer
	inFlight int            // lost with the plugin
	refused  int            // sent before it was back
	by       map[string]int // answers by endpoint
}

// sumUp returns the sum of what was answered and what was not.
func sumUp(answers []answer, g gap) sum {
	s := sum{by: make(map[string]int)}
	for _, a := range answers {
		switch {
		case a.err == nil:
			s.by[a.from]++
			s.requests++
		case !g.explains(a):
			s.failed = append(s.failed, a)
			s.requests++
		case a.began.Before(g.killed):
			s.inFlight++
		default:
			s.refused++
		}
	}
	return s
}

func (l *load) add(a answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers = append(l.answers, a)
	if a.err == nil && !l.gap.gone.IsZero() && a.began.After(l.gap.gone) {
		if first, ok := l.gap.back[a.service]; !ok || a.ended.Before(first) {
			l.gap.back[a.service] = a.ended
		}
	}
}

// killing notes that the plugin is killed now.
func (l *load) killing(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gap = gap{killed: now, back: make(map[string]time.Time)}
}

// gone notes that its process is no more.
func (l *load) gone(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gap.gone = now
}

// back returns since when all Services answer again, if they do.
func (l *load) back() (last time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range l.gap.back {
		if at.After(last) {
			last = at
		}
	}
	return last, len(l.gap.back) == len(services())
}

// last returns when the last request began that an endpoint answered.
func (l *load) last(endpoint string) (last time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.answers {
		if a.from == endpoint && a.err == nil && a.began.After(last) {
			last = a.began
		}
	}
	return last
}

// now returns how many answers there are so far, from which since counts.
func (l *load) now() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.answers)
}

// since returns what all requests came to that ended since then.
func (l *load) since(then int) sum {
	l.mu.Lock()
	defer l.mu.Unlock()
	return sumUp(l.answers[then:], l.gap)
}

// serve starts the servers behind all Services. They answer with their names.
func serve(n network) ([]io.Closer, error) {
	var all []io.Closer
	for _, svc := range services() {
		for _, ep := range svc.endpoints {
			s, err := serveOne(svc.network, n.at(ep.addr).String(), ep.name)
			if err != nil {
				return all, fmt.Errorf("start the server %s: %w", ep.name, err)
			}
			all = append(all, s)
		}
	}
	return all, nil
}

// serveOne starts one server, whose goroutine ends when it is closed.
func serveOne(network, addr, name string) (io.Closer, error) {
	if network == "udp" {
		conn, err := net.ListenPacket(network, addr)
		if err == nil {
			go answerPackets(conn, name)
		}
		return conn, err
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		return nil, err
	}
	server := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(work)
		_, _ = io.WriteString(w, name)
	})}
	go server.Serve(l)
	return server, nil
}

func answerPackets(conn net.PacketConn, name string) {
	packet := make([]byte, 512)
	for {
		_, from, err := conn.ReadFrom(packet)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = conn.WriteTo([]byte(name), from)
		}
	}
}
