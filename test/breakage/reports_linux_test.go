// SPDX-License-Identifier: Apache-2.0

package breakage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/test/eventually"
)

// soon is how long a test waits for a report or for a Service to be served. It is many times what a
// busy machine needs: how long a report takes is a figure of make bench.
const soon = eventually.Timeout

// within waits up to limit for check to find nothing wrong, and reports what it finds then.
func (n *node) within(limit time.Duration, what string, check func() error) bool {
	n.Helper()
	began := time.Now()
	if err := eventually.Try(limit, check); err != nil {
		n.Errorf("%s, not within %s: %v", what, limit, err)
		return false
	}
	n.Logf("  %.1f s until %s", time.Since(began).Seconds(), what)
	return true
}

// A look is all that a host reports, at one moment.
type look struct {
	status  admin.Status
	metrics string
	codes   map[string]int    // of the probes
	bodies  map[string]string // of the probes
}

// look asks the host for everything. A probe that gives no answer has no code.
func (n *node) look() (l look, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if l.status, err = n.Status(ctx); err != nil {
		return l, err
	}
	l.codes, l.bodies = make(map[string]int), make(map[string]string)
	for _, probe := range []string{"healthz", "livez", "readyz"} {
		l.codes[probe], l.bodies[probe], err = n.get(ctx, "http://"+n.healthz+"/"+probe)
		if err != nil {
			return l, err
		}
	}
	_, l.metrics, err = n.get(ctx, "http://"+n.metrics+"/metrics")
	return l, err
}

// get asks over HTTP on the node.
func (n *node) get(ctx context.Context, url string) (code int, body string, err error) {
	dial := func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = n.here.Do(func() error { conn, err = new(net.Dialer).DialContext(ctx, "tcp4", address); return err })
		return conn, err
	}
	c := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := c.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// A report is something that a host has to say.
type report struct {
	what  string
	wrong func(look) error // nil: it says so
}

// warning is one with this code, and this in its text.
func warning(code, text string) report {
	return report{"status warns " + strings.TrimSpace(code+" "+text), func(l look) error {
		for _, w := range l.status.Warnings {
			if w.Code == code && strings.Contains(w.Text, text) {
				return nil
			}
		}
		return fmt.Errorf("the warnings are %q", l.status.Warnings)
	}}
}

// warned is any of these codes.
func warned(codes ...string) report {
	return report{"status warns by one of " + strings.Join(codes, ", "), func(l look) error {
		for _, w := range l.status.Warnings {
			if slices.Contains(codes, w.Code) {
				return nil
			}
		}
		return fmt.Errorf("the warnings are %q", l.status.Warnings)
	}}
}

// metric is a series with a value that is right.
func metric(series string, right func(float64) bool) report {
	return report{"metrics have " + series, func(l look) error {
		value, err := valued(l.metrics, series)
		if err == nil && !right(value) {
			err = fmt.Errorf("it is %v", value)
		}
		return err
	}}
}

func valued(text, series string) (float64, error) {
	for line := range strings.Lines(text) {
		if rest, found := strings.CutPrefix(line, series+" "); found {
			return strconv.ParseFloat(strings.TrimSpace(rest), 64)
		}
	}
	return 0, errors.New("there is no such series")
}

func zero(v float64) bool { return v == 0 }
func some(v float64) bool { return v > 0 }

// probe is one that has this code, with kube-proxy's body.
func probe(which string, code int) report {
	return report{fmt.Sprintf("%s answers %d", which, code), func(l look) error {
		if l.codes[which] != code {
			return fmt.Errorf("it is %d: %s", l.codes[which], l.bodies[which])
		}
		var body struct {
			LastUpdated, CurrentTime time.Time
			NodeEligible             *bool
		}
		if err := json.Unmarshal([]byte(l.bodies[which]), &body); err != nil || body.CurrentTime.IsZero() || which == "healthz" && body.NodeEligible == nil {
			return fmt.Errorf("its body is not kube-proxy's: %s, %w", l.bodies[which], err)
		}
		return nil
	}}
}

// shows holds the host to saying all that, within a time.
func (n *node) shows(limit time.Duration, reports ...report) {
	n.Helper()
	var left []string
	for _, r := range reports {
		left = append(left, r.what)
	}
	n.within(limit, strings.Join(left, "; "), func() error {
		l, err := n.look()
		if err != nil {
			return err
		}
		var wrong []error
		for _, r := range reports {
			if err := r.wrong(l); err != nil {
				wrong = append(wrong, fmt.Errorf("%s: %w", r.what, err))
			}
		}
		return errors.Join(wrong...)
	})
}

// served says that the host has told all there is, and that it is in place.
func (n *node) served() error {
	s, err := n.Status(context.Background())
	switch d := s.Dataplane; {
	case err != nil:
		return err
	case d.State != "serving" || d.Role != "active":
		return fmt.Errorf("%s is %s, %s: %s", d.Name, d.State, d.Role, d.Why)
	case s.Sync.Acked == 0 || s.Sync.Pending > 0:
		return fmt.Errorf("sync %+v", s.Sync)
	case s.Services.Services != len(n.services)+1:
		return fmt.Errorf("%d Services, and there are %d", s.Services.Services, len(n.services)+1)
	}
	return nil
}

// passing are the warnings that stay for a while after what they warn of.
var passing = []string{"W002", "W009"}

// settle waits until all that was done is over and undone: the host says that it serves
// everything, and warns of nothing; and each Service is reached as it should be.
func (n *node) settle() {
	n.Helper()
	n.until("the host serves everything", long, func() error {
		if err := n.served(); err != nil {
			return err
		}
		n.relayBack()
		m, err := n.Mode(context.Background())
		if err == nil && m.Swap != nil {
			err = fmt.Errorf("a swap is under way: %+v", *m.Swap)
		}
		return err
	})
	n.shows(soon, report{"status warns of nothing that stays", func(l look) error {
		for _, w := range l.status.Warnings {
			if !slices.Contains(passing, w.Code) {
				return fmt.Errorf("%s %s", w.Code, w.Text)
			}
		}
		return nil
	}}, probe("readyz", 200), probe("healthz", 200))
	n.within(soon, "each Service is reached", n.reached)
}

// bundle leaves all that is known of a run that failed, and says where.
func (n *node) bundle() {
	dir, err := os.MkdirTemp(os.Getenv("POINTSMAN_BUNDLE"), "breakage-bundle-")
	if err != nil {
		n.Error(err)
		return
	}
	keep := func(name, text string) {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o644); err != nil {
			n.Error(err)
		}
	}
	l, err := n.look()
	keep("metrics.txt", l.metrics)
	keep("probes.txt", fmt.Sprintf("%v\n%v\n%v\n", l.codes, l.bodies, err))
	for name, words := range map[string][]string{
		"status.yaml": {"status", "-o", "yaml"}, "mode.yaml": {"mode", "show", "-o", "yaml"}, "plugins.yaml": {"plugin", "list", "-o", "yaml"},
	} {
		out, err := n.verb(words...)
		keep(name, fmt.Sprintf("%s\n%v\n", out, err))
	}
	if events, err := n.Events(context.Background()); err == nil {
		var text strings.Builder
		for _, e := range events.Items {
			fmt.Fprintf(&text, "%s %s %s %s (%d)\n", e.Time.Format(time.RFC3339Nano), e.Reason, e.Object, e.Message, e.Count)
		}
		keep("events.txt", text.String())
	}
	keep("rules.txt", n.dump().String())
	keep("sequence.txt", strings.Join(n.sequence, "\n")+"\n")
	keep("processes.txt", fmt.Sprintf("%v\n", n.processes()))
	if n.load != nil {
		keep("traffic.txt", fmt.Sprintf("%v\n%v\n", n.load.Sofar().Failed, n.relayed))
	}
	out, _ := n.run("sh", "-c", fmt.Sprintf("ls -lR %s; cp -r %s/*.log %s/*.yaml %s/; tar -C %s --exclude=*.sock -cf %s/state.tar state services", n.dir, n.dir, n.dir, dir, n.dir, dir))
	keep("files.txt", out)
	n.Logf("the sequence:\n  %s\nall that is known of it: %s", strings.Join(n.sequence, "\n  "), dir)
}
