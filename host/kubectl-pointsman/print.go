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

// A verb is a verb of pointsman that runs on all nodes.
type verb struct {
	name, args, short, long string
	head                    string                  // of the table, without the column of nodes
	rows                    func(Answer) [][]string // of the table, for one answer; nil for the lines that the node prints
}

var verbs = []*verb{
	{name: "status", short: "Show the state of each node's host in a row", head: "STATE MODE DATAPLANE HOST SERVICES ENDPOINTS PENDING UNSERVED WHY", rows: statusRow},
	{name: "explain", args: " SRC DST:PORT[/PROTOCOL]", short: "Explain what happens to a packet, on the node where SRC is", head: "ANSWER",
		long: `Explain says what happens to the first packet of a connection, on the node of SRC or of --node. SRC is
an address, NAMESPACE/NAME of a pod, pod:ADDRESS, node:ADDRESS or outside:ADDRESS. A packet from
outside arrives at the node that has the address DST.`},
	{name: "diff", short: "Show where the kernel of a node differs from the desired state", head: "ANSWER"},
	{name: "events", short: "Print the recent events of all nodes, the latest last", head: "TIME GRADE REASON OBJECT MESSAGE", rows: eventRows},
}

// A List is the output of -o json.
type List struct {
	admin.Meta
	Items []Answer `json:"items"`
}

// print prints the answers, and returns an error with the exit status.
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
		if !f.problems || a.Error != "" || a.code != 0 || v.name == "events" && keepWarnings(&a) {
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

// table prints the rows of all answers. It sorts events by time.
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

// read decodes an answer as far as it fits: other versions only add fields.
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

// keepWarnings removes events that are no warnings, and reports whether any event is left.
func keepWarnings(a *Answer) bool {
	list := read[admin.EventList](*a)
	list.Items = slices.DeleteFunc(list.Items, func(e admin.Event) bool { return !e.Warning })
	a.Answer, _ = json.Marshal(list) // it cannot fail
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
