// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/host/admin"
)

// The stages of a swap, in their order; what comes instead when it fails is returning.
var stages = []string{"preflight", "staging", "verifying", "holding", "cutting", "proving", "draining", "clearing"}

// The states of a plugin's process on its way to serving.
var life = []string{"starting", "trying", "serving"}

// A mark is one of several things that come one after the other.
type mark struct {
	Name string
	Now  bool // it is the one that is under way
	Past bool
}

// marks returns steps with the one that is under way, which is put behind them if it is none of them.
func marks(steps []string, now string) []mark {
	at := slices.Index(steps, now)
	list := make([]mark, 0, len(steps)+1)
	for i, step := range steps {
		list = append(list, mark{Name: step, Now: i == at, Past: i < at})
	}
	if at < 0 && now != "" {
		list = append(list, mark{Name: now, Now: true})
	}
	return list
}

// An overview is how the host is doing, on one screen.
type overview struct {
	admin.Status
	Stages []mark // of the swap, if there is one
	Life   []mark // of the plugin's process
	Lately []admin.Event
	Causes []cause
}

// A cause is why some Services are not served as they ask.
type cause struct {
	Reason, Why string
	Services    []string // the first of them
	More        int
}

// shownNames is how many Services a cause names, and shownEvents how many events a life line has.
const shownNames, shownEvents = 3, 8

func (s *Site) overview(w http.ResponseWriter, _ *http.Request) error {
	status := s.backend.Status()
	o := overview{Status: status, Life: marks(life, status.Dataplane.State), Causes: causes(status.Unserved)}
	if status.Swap != nil {
		o.Stages = marks(stages, status.Swap.Stage)
	}
	o.Lately = lately(s.backend.Events(), status.Dataplane.Name)
	return s.show(w, http.StatusOK, "overview", frame{Title: "Overview", Live: true, Here: "/", Main: o})
}

// lately returns what happened last to a plugin, the latest first.
func lately(events []admin.Event, plugin string) []admin.Event {
	var own []admin.Event
	for _, e := range slices.Backward(events) {
		if e.Object == plugin && len(own) < shownEvents {
			own = append(own, e)
		}
	}
	return own
}

// causes groups problems that have the same cause.
func causes(problems []admin.Problem) []cause {
	var list []cause
	at := make(map[[2]string]int)
	for _, p := range problems {
		key := [2]string{p.Reason, p.Why}
		i, known := at[key]
		if !known {
			i = len(list)
			at[key] = i
			list = append(list, cause{Reason: p.Reason, Why: p.Why})
		}
		if len(list[i].Services) < shownNames {
			list[i].Services = append(list[i].Services, p.Service)
		} else {
			list[i].More++
		}
	}
	return list
}

// What may be asked of the list of Services as a state, beside the states themselves.
const (
	anyState   = ""
	notServed  = "problems" // any state but served
	fullServed = "served"
)

// states are what the list of Services may be narrowed to.
var states = []string{notServed, fullServed, "pending", "no endpoints", "failed", "refused", "withheld", "quarantined", "conflict", "invalid"}

// mostLive is how many rows of the list of Services are kept current. A longer list is work for host and
// browser, and stays as it was asked for.
const mostLive = 1000

// inPart is how many rows of the list of Services are shown at once: a browser takes seconds to lay out
// a table of thousands.
const inPart = 200

// A serviceList is the ports of Services that were asked for, or a part of them.
type serviceList struct {
	Text, State   string
	States        []string
	Shown         int // rows that were asked for
	Of            int // Services there are
	Rows          iter.Seq[row]
	First, Last   int    // rows of this part, counted from 1; zero: it has all of them
	Before, After string // where the part before it is, and that after it; empty: there is none
}

// A row is one port of a Service, or a Service that has none.
type row struct {
	Service admin.Service
	Port    *admin.Port // nil: it has none that is served
}

func (s *Site) services(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	all := s.backend.Services()
	list := serviceList{Text: strings.TrimSpace(q.Get("text")), State: q.Get("state"), States: states, Of: len(all)}
	list.Rows = rows(all, list.Text, list.State)
	for range list.Rows {
		list.Shown++
	}
	from, _ := strconv.Atoi(q.Get("from")) // what is no number is the beginning
	list.cut(from)
	return s.show(w, http.StatusOK, "services", frame{Title: "Services", Live: list.Shown <= mostLive, Here: "/services", Main: list})
}

// cut leaves the part of a long list in which the row at from is, counted from 0.
func (l *serviceList) cut(from int) {
	if l.Shown <= inPart {
		return
	}
	from = min(max(0, from), l.Shown-1) / inPart * inPart
	whole, end := l.Rows, min(from+inPart, l.Shown)
	l.First, l.Last = from+1, end
	l.Rows = func(yield func(row) bool) {
		n := 0
		for r := range whole {
			if n++; n > end || n > from && !yield(r) {
				return
			}
		}
	}
	at := func(from int) string {
		return "/services?" + url.Values{"text": {l.Text}, "state": {l.State}, "from": {strconv.Itoa(from)}}.Encode()
	}
	if from > 0 {
		l.Before = at(from - inPart)
	}
	if end < l.Shown {
		l.After = at(end)
	}
}

// rows goes through the ports of all Services that have text in what the list shows of them or in
// their endpoints, and are in a state. It copies none of them: there may be ten thousand.
func rows(all []admin.Service, text, state string) iter.Seq[row] {
	return func(yield func(row) bool) {
		for _, s := range all {
			for i := range s.Ports {
				p := &s.Ports[i]
				if isIn(p.State, state) && (text == "" || s.Mentions(*p, text)) && !yield(row{s, p}) {
					return
				}
			}
			named := strings.Contains(s.Namespace+"/"+s.Name, text)
			if len(s.Ports) == 0 && named && (state == anyState || state == notServed) && !yield(row{Service: s}) {
				return
			}
		}
	}
}

func isIn(state, asked string) bool {
	return asked == anyState || state == asked || asked == notServed && state != fullServed
}

// A serviceView is one Service.
type serviceView struct {
	admin.ServiceDetail
	Ports   []portView
	Targets []string // what explain may be asked of it: ADDRESS:PORT/PROTOCOL
}

// A portView is one port of a Service.
type portView struct {
	admin.Port
	Title   string
	Picture picture
}

var errBusy = &admin.Error{Code: http.StatusTooManyRequests, What: "too many questions at once", Why: "each has the dataplane read what it serves", Try: "again in a second"}

// service shows one Service.
func (s *Site) service(w http.ResponseWriter, r *http.Request) error {
	if !s.reads.allow() {
		return errBusy
	}
	detail, err := s.backend.Service(r.Context(), r.PathValue("namespace"), r.PathValue("name"))
	if err != nil {
		return err
	}
	view := serviceView{ServiceDetail: detail}
	addrs := s.backend.Status().Node.Addrs
	for _, p := range detail.Ports {
		view.Ports = append(view.Ports, portView{p, detail.PortName(p), draw(detail, p)})
		view.Targets = append(view.Targets, targets(p, addrs)...)
	}
	return s.show(w, http.StatusOK, "service", frame{Title: detail.Namespace + "/" + detail.Name, Live: true, Here: "/services", Main: view})
}

// targets returns where the frontends of p are reached, each once, as explain reads it. A node port is
// reached at the first address of the node in its family.
func targets(p admin.Port, node []string) []string {
	first := ""
	for _, text := range slices.Backward(node) {
		if addr, err := netip.ParseAddr(text); err == nil && addr.Is4() == strings.HasSuffix(p.Network, "4") {
			first = net.JoinHostPort(text, "")
		}
	}
	var list []string
	for _, f := range p.Frontends {
		if first != "" {
			f = strings.Replace(f, " *:", " "+first, 1)
		}
		if to, ok := p.Destination(f); ok && !slices.Contains(list, to) {
			list = append(list, to)
		}
	}
	return list
}

// An explainView is a packet that was asked about, and what becomes of it.
type explainView struct {
	From, To string
	Wrong    string // why there is no answer to the question; empty: there is, or nothing was asked
	Asked    bool
	Answer   admin.Explanation
}

func (s *Site) explain(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	view := explainView{From: strings.TrimSpace(q.Get("from")), To: strings.TrimSpace(q.Get("to"))}
	code, err := s.answer(r.Context(), &view)
	if err != nil {
		return err
	}
	return s.show(w, code, "explain", frame{Title: "Explain", Here: "/explain", Main: view})
}

// answer completes view with what becomes of the packet.
func (s *Site) answer(ctx context.Context, view *explainView) (code int, err error) {
	if view.From == "" && view.To == "" {
		return http.StatusOK, nil
	}
	question, err := admin.ParseQuestion(view.From, view.To)
	if wrong := (*admin.Error)(nil); errors.As(err, &wrong) {
		view.Wrong = wrong.What
		return cmp.Or(wrong.Code, http.StatusBadRequest), nil
	}
	if err == nil && !s.reads.allow() {
		err = errBusy
	}
	if err != nil {
		return 0, err
	}
	view.Answer, err = s.backend.Explain(ctx, question)
	view.Asked = true
	return http.StatusOK, err
}

func (s *Site) plugins(w http.ResponseWriter, _ *http.Request) error {
	return s.show(w, http.StatusOK, "plugins", frame{Title: "Plugins", Live: true, Here: "/plugins", Main: s.backend.Plugins()})
}

// shownLines is how many lines of a plugin's log are shown: the last ones.
const shownLines = 500

// A logView is the end of a plugin's log.
type logView struct {
	Plugin string
	Lines  []admin.LogLine
}

func (s *Site) logs(w http.ResponseWriter, r *http.Request) error {
	view := logView{Plugin: r.PathValue("name")}
	err := s.backend.Logs(r.Context(), view.Plugin, false, func(l admin.LogLine) error {
		if len(view.Lines) == shownLines {
			view.Lines = view.Lines[1:]
		}
		view.Lines = append(view.Lines, l)
		return nil
	})
	if err != nil {
		return err
	}
	return s.show(w, http.StatusOK, "logs", frame{Title: "Log of " + view.Plugin, Live: true, Here: "/plugins", Main: view})
}

// An eventView is what happened lately, the latest first.
type eventView struct {
	Warnings bool // these alone
	Events   []admin.Event
}

func (s *Site) events(w http.ResponseWriter, r *http.Request) error {
	view := eventView{Warnings: r.URL.Query().Get("warnings") == "1"}
	for _, e := range slices.Backward(s.backend.Events()) {
		if e.Warning || !view.Warnings {
			view.Events = append(view.Events, e)
		}
	}
	return s.show(w, http.StatusOK, "events", frame{Title: "Events", Live: true, Here: "/events", Main: view})
}
