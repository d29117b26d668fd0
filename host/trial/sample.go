// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// timeout is for one answer of the host, and for one connection.
const timeout = 5 * time.Second

// largest is how much of the metrics is read: a page has some hundred kilobytes.
const largest = 32 << 20

// A Sampler sees a node from where it runs. Its methods are for one goroutine.
type Sampler struct {
	URL      string   // of the metrics
	Connects []string // frontends, each ADDRESS:PORT
}

// Sample reads the metrics, and connects once to each frontend, all at once. It takes at most some
// seconds.
func (p Sampler) Sample(ctx context.Context) Sample {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	s := Sample{Tried: len(p.Connects)}
	errs := make([]error, len(p.Connects))
	var all sync.WaitGroup
	for i, at := range p.Connects {
		all.Go(func() { errs[i] = connect(ctx, at) })
	}
	p.metrics(ctx, &s)
	all.Wait()
	for _, err := range errs {
		if err != nil {
			s.Failed = append(s.Failed, err)
		}
	}
	s.At = time.Now()
	return s
}

// connect opens a connection and closes it, which says that an endpoint, or a relay, took it.
func connect(ctx context.Context, at string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", at)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", at, err)
	}
	return conn.Close()
}

func (p Sampler) metrics(ctx context.Context, s *Sample) {
	s.Err = func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL, nil)
		if err != nil {
			return fmt.Errorf("read the metrics: %w", err)
		}
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		answer, err := client.Do(request)
		if err != nil {
			return fmt.Errorf("read the metrics: %w", err)
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("read the metrics: %s answers %s", p.URL, answer.Status)
		}
		return parse(io.LimitReader(answer.Body, largest), s)
	}()
}

// parse reads what a trial needs of a page of metrics.
func parse(text io.Reader, s *Sample) error {
	found := make(map[string]float64)
	lines := bufio.NewScanner(text)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if !ok || !strings.HasPrefix(name, "pointsman_") {
			continue
		}
		name, labels, _ := strings.Cut(name, "{")
		v, err := strconv.ParseFloat(value[strings.LastIndex(value, " ")+1:], 64)
		if err != nil {
			continue // a label with a blank in it, which none of those that count here has
		}
		if name != "pointsman_unserved" || ofDataplane(labels) {
			found[name] += v
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the metrics: %w", err)
	}
	for _, name := range []string{"pointsman_healthy", "pointsman_ready"} {
		if _, ok := found[name]; !ok {
			return fmt.Errorf("the metrics have no %s: is it pointsman that answers there?", name)
		}
	}
	s.Healthy, s.Ready = found["pointsman_healthy"] == 1, found["pointsman_ready"] == 1
	s.Unserved = int(found["pointsman_unserved"])
	return nil
}

// ofDataplane reports whether labels of pointsman_unserved name a reason that lies with the dataplane,
// and not with what a Service asks for.
func ofDataplane(labels string) bool {
	return strings.Contains(labels, `why="failed"`) || strings.Contains(labels, `why="quarantined"`)
}
