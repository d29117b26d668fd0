// SPDX-License-Identifier: Apache-2.0

/*
Package admin is how the other verbs of pointsman, and an operator's scripts, reach
a running host: HTTP and JSON on a unix socket that only its owner may open.

	GET  /v1/status                     Status
	GET  /v1/services                   ServiceList
	GET  /v1/services/NAMESPACE/NAME    ServiceDetail
	GET  /v1/explain?from=SRC&to=DST    Explanation
	GET  /v1/plugins                    PluginList
	GET  /v1/plugins/NAME               Plugin
	GET  /v1/plugins/NAME/logs?follow=1 LogLine, one JSON value a line
	GET  /v1/config                     Config
	GET  /v1/events                     EventList
	GET  /v1/metrics                    text, as at metricsBindAddress
	GET  /v1/mode                       Mode
	GET  /v1/diff                       Diff
	POST /v1/plugins/NAME/restart       Done
	POST /v1/mode/swap?to=NAME          Done
	POST /v1/mode/reset                 Done
	POST /v1/watch?from=SRC&to=DST      Watched, one JSON value a line, until the caller goes

Reading is GET and acting is POST. Every body says its apiVersion and kind, and so
does everything that a verb prints with -o json: it is the same. Within v1 fields
are only added. The types are this package's own, so that a change elsewhere cannot
change the promise unseen.
*/
package admin

import (
	"encoding/json"
	"time"
)

// APIVersion is the version of every body.
const APIVersion = "pointsman.dev/v1"

// Meta is in every body.
type Meta struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// A Status is how a host is doing, on one screen.
type Status struct {
	Meta
	Healthy   bool      `json:"healthy"` // nothing in Warnings
	Node      Node      `json:"node"`
	Host      Host      `json:"host"`
	Source    string    `json:"source"` // where Services come from
	Mode      string    `json:"mode"`
	Auto      string    `json:"auto,omitempty"` // where the config file says auto: since when it stands for which mode, and why
	Dataplane Plugin    `json:"dataplane"`
	Swap      *Swap     `json:"swap,omitempty"` // of the mode, under way
	LastSwap  *Swapped  `json:"lastSwap,omitempty"`
	Sync      Sync      `json:"sync"`
	Services  Counts    `json:"services"`
	Unserved  []Problem `json:"unserved"` // Services that are not served as asked for
	Config    ConfigUse `json:"config"`
	Probes    Probes    `json:"probes"`
	Warnings  []Warning `json:"warnings"`
}

// Probes are what the host's probes say of the node; true is 200.
type Probes struct {
	Healthz bool `json:"healthz"`
	Livez   bool `json:"livez"`
	Readyz  bool `json:"readyz"`
}

// A Node is this node as the host knows it.
type Node struct {
	Name  string   `json:"name"`
	Addrs []string `json:"addresses"`
}

// A Host is the process that answers.
type Host struct {
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
}

// A Sync is how far the dataplane has followed.
type Sync struct {
	Sent    uint64    `json:"sent"`    // revision handed out last
	Acked   uint64    `json:"acked"`   // revision confirmed last
	Served  uint64    `json:"served"`  // the same: what is confirmed is served
	Pending int       `json:"pending"` // Services owed or in flight
	Last    time.Time `json:"last"`    // when one was confirmed; zero: none was
	TookMS  float64   `json:"tookMilliseconds"`
	Error   string    `json:"error,omitempty"` // of the last try, where it failed
}

// Counts are how much is known.
type Counts struct {
	Services       int `json:"services"`
	Ports          int `json:"ports"` // of them, in each IP family
	EndpointSlices int `json:"endpointSlices"`
	Endpoints      int `json:"endpoints"`
}

// A Problem is a Service and what is wrong with serving it.
type Problem struct {
	Service string `json:"service"`
	Reason  string `json:"reason"` // failed, refused, withheld, conflict, invalid
	Why     string `json:"why"`
}

// A ConfigUse is how the host stands to its file.
type ConfigUse struct {
	Path    string    `json:"path"` // empty: defaults, flags and environment alone
	Hash    string    `json:"hash"`
	Loaded  time.Time `json:"loaded"`
	Stale   string    `json:"stale,omitempty"` // why the file as it is now was not taken in
	Pending []string  `json:"pending"`         // fields that wait for a restart
}

// A Warning is a thing to look at. Its code stays the same and is explained in
// docs/warnings.md.
type Warning struct {
	Code string `json:"code"`
	Text string `json:"text"`
	Try  string `json:"try,omitempty"`
}

// A Plugin is a dataplane's binary and, if it runs, its process.
type Plugin struct {
	Meta
	Name     string    `json:"name"`
	Path     string    `json:"path"`
	InUse    bool      `json:"inUse"`
	State    string    `json:"state"` // serving, starting, suspect, waiting, refused, stopped; unused
	Why      string    `json:"why,omitempty"`
	Version  string    `json:"version,omitempty"`
	Role     string    `json:"role,omitempty"`
	Lock     string    `json:"lock,omitempty"`   // the writer's lock of the mode: awaited, while another process holds it; held, once an update or a role went in, also of a mode that needs no lock
	Holder   string    `json:"holder,omitempty"` // where it is awaited: the process that holds it
	PID      int       `json:"pid,omitempty"`
	Up       time.Time `json:"up,omitzero"`
	Restarts int       `json:"restarts"`
	Debug    bool      `json:"debug,omitempty"` // its process is not ended if it hangs
	LastEnd  string    `json:"lastEnd,omitempty"`
	EndedAt  time.Time `json:"endedAt,omitzero"`
	Next     time.Time `json:"next,omitzero"` // when it is tried again
	Call     string    `json:"call,omitempty"`
	Waiting  string    `json:"waiting,omitempty"`
	Notes    []string  `json:"notes,omitempty"` // what it observed on the node, and costs no Service
	Memory   uint64    `json:"memoryBytes,omitempty"`
	Features []string  `json:"features,omitempty"`
	Limits   []string  `json:"limits,omitempty"`

	Options json.RawMessage `json:"optionsSchema,omitempty"`
}

// A PluginList is all plugins that were found.
type PluginList struct {
	Meta
	Items []Plugin `json:"items"`
}

// A Check is what a plugin's binary says of this node, by its verb check.
type Check struct {
	Meta
	Name    string   `json:"name"`
	Path    string   `json:"path"`
	Runs    bool     `json:"runs"`
	Why     string   `json:"why,omitempty"`   // it does not
	Field   string   `json:"field,omitempty"` // what it refuses: options.scheduler; empty: it is not about one thing
	Version string   `json:"version"`
	Lacks   []string `json:"lacks"` // what does not work here
	Notes   []string `json:"notes"` // what it observed besides, and costs no Service

	SwapImpact string `json:"swapImpact,omitempty"` // what a swap to it would end
}

// A MovePlan is what would change on a node with Pointsman in kube-proxy's place.
type MovePlan struct {
	Meta
	PID      int      `json:"pid,omitempty"` // of kube-proxy
	Config   string   `json:"config"`        // the file of its settings
	From     string   `json:"from"`          // its mode
	To       string   `json:"to"`
	Settings []string `json:"settings"`        // those that do not carry over
	Taken    []string `json:"taken"`           // what Pointsman would take over of kube-proxy's rules
	Left     []string `json:"left"`            // what kube-proxy would leave over
	Kept     []string `json:"kept,omitempty"`  // what of it other programs' rules lead to, and stays
	Notes    []string `json:"notes,omitempty"` // what could not be looked at
	Back     string   `json:"back"`            // the way back to kube-proxy
}

// A Config is the settings in force.
type Config struct {
	Meta
	Use      ConfigUse       `json:"use"`
	Settings json.RawMessage `json:"settings"`
}

// An Event is something that happened, and how often.
type Event struct {
	Time    time.Time `json:"time"`
	Warning bool      `json:"warning"`
	Reason  string    `json:"reason"`
	Object  string    `json:"object,omitempty"`
	Message string    `json:"message"`
	Count   int       `json:"count"`
}

// An EventList is what happened lately, the latest last.
type EventList struct {
	Meta
	Items []Event `json:"items"`
}

// A LogLine is a line of a plugin's log.
type LogLine struct {
	Time    time.Time `json:"time"`
	Level   string    `json:"level"`
	Message string    `json:"message"`
}

// Done is the answer to an act.
type Done struct {
	Meta
	Message string `json:"message"`
}

// An Error is what went wrong, why, and what to do. It is the body of every
// answer that is no success, and an error on both sides of the socket.
type Error struct {
	Code int    `json:"-"` // HTTP status; zero: 500
	What string `json:"what"`
	Why  string `json:"why,omitempty"`
	Try  string `json:"try,omitempty"`
}

func (e *Error) Error() string {
	s := e.What
	if e.Why != "" {
		s += ": " + e.Why
	}
	if e.Try != "" {
		s += "; try: " + e.Try
	}
	return s
}
