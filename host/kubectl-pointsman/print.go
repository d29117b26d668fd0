// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/pointsman/pointsman/host/admin"
)

// A verb is one of pointsman's.
type verb struct {
	name, words, short, long string
	head                     string                  // of its table, without the node
	rows                     func(Answer) [][]string // of an answer, likewise; nil: the lines that the node prints
}

var verbs = []*verb{
	{name: "status", short: "Say in a row for each node how its host is doing", head: "STATE MODE DATAPLANE HOST SERVICES ENDPOINTS PENDING UNSERVED WHY", rows: statusRow},
	{name: "explain", words: " SRC DST:PORT[/PROTOCOL]", short: "Say what becomes of a packet, on the node where SRC is", head: "ANSWER",
		long: `Explain says what becomes of the first packet of a connection, on the node where SRC is or that
--node names. SRC is an address, NAMESPACE/NAME of a pod, pod:ADDRESS, node:ADDRESS or
outside:ADDRESS; the packet of the last one comes to the node that has the address DST.`},
	{name: "diff", short: "Say where the kernel of a node serves something else than it should", head: "ANSWER"},
	{name: "events", short: "Print what happened lately on all nodes, the latest last", head: "TIME GRADE REASON OBJECT MESSAGE", rows: eventRows},
}

// A List is what -o json prints.
type List struct {
	admin.Meta
	Items []Answer `json:"items"`
}

// print prints the answers, and returns the exit as an error.
func (v *verb) print(w io.Writer, f *flags, answers []Answer) (err error) {
	code, list := 0, List{admin.Meta{APIVersion: admin.APIVersion, Kind: "NodeAnswerList"}, []Answer{}}
	for _, a := range answers {
		switch {
		case a.code == exitFailed || code == exitFailed:
			code = exitFailed
		case a.Error != "":
			code = exitNoAnswer
		default:
			code = max(code, a.code)
		}
		if !f.problems || a.Error != "" || a.code != 0 || v.name == "events" && warned(&a) {
			list.Items = append(list.Items, a)
		}
	}
	if f.output == "table" {
		err = v.table(w, list.Items)
	} else {
		var text []byte
		if text, err = json.MarshalIndent(list, "", "  "); err == nil && f.output == "yaml" {
			text, err = yaml.JSONToYAML(text)
		}
		if err == nil {
			_, err = fmt.Fprintln(w, strings.TrimSpace(string(text)))
		}
	}
	if err == nil && code != 0 {
		err = failure{exit: code}
	}
	return err
}

// table prints the rows of all answers, those of events in the order of their times.
func (v *verb) table(w io.Writer, answers []Answer) error {
	all := [][]string{}
	for _, a := range answers {
		var rows [][]string
		switch {
		case a.Error != "":
			rows = [][]string{{"no answer: " + strings.TrimPrefix(a.Error, "no answer ")}}
		case v.rows != nil:
			rows = v.rows(a)
		default:
			for line := range strings.Lines(a.text) {
				rows = append(rows, []string{line})
			}
		}
		for _, row := range rows {
			all = append(all, append([]string{a.Node}, row...))
		}
	}
	if v.name == "events" {
		slices.SortStableFunc(all, func(a, b []string) int { return cmp.Compare(a[1], b[1]) })
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range slices.Insert(all, 0, strings.Fields("NODE "+v.head)) {
		fmt.Fprintln(t, strings.ReplaceAll(strings.TrimSpace(strings.Join(row, "\t")), "\n", " "))
	}
	return t.Flush()
}

// read reads an answer. Versions only add fields, so one that does not fit is read as far as it does.
func read[T any](a Answer) (v T) {
	_ = json.Unmarshal(a.Answer, &v)
	return v
}

func statusRow(a Answer) [][]string {
	s, state, why := read[admin.Status](a), "well", []string{}
	for _, w := range s.Warnings {
		state, why = "warning", append(why, w.Code+" "+w.Text)
	}
	return [][]string{{state, s.Mode, cmp.Or(s.Dataplane.Role, s.Dataplane.State) + " " + s.Dataplane.Version, s.Host.Version, strconv.Itoa(s.Services.Services),
		strconv.Itoa(s.Services.Endpoints), strconv.Itoa(s.Sync.Pending), strconv.Itoa(len(s.Unserved)), cmp.Or(strings.Join(why, "; "), "-")}}
}

// warned removes what is no warning, and reports whether anything is left.
func warned(a *Answer) bool {
	list := read[admin.EventList](*a)
	list.Items = slices.DeleteFunc(list.Items, func(e admin.Event) bool { return !e.Warning })
	a.Answer, _ = json.Marshal(list) // of times and texts
	return len(list.Items) > 0
}

func eventRows(a Answer) (rows [][]string) {
	for _, e := range read[admin.EventList](a).Items {
		grade, text := "normal", e.Message
		if e.Warning {
			grade = "warning"
		}
		if e.Count > 1 {
			text += fmt.Sprintf(" (%d times)", e.Count)
		}
		rows = append(rows, []string{e.Time.UTC().Format(time.RFC3339), grade, e.Reason, cmp.Or(e.Object, "-"), text})
	}
	return rows
}
