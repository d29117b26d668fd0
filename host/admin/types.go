// SPDX-License-Identifier: Apache-2.0

/*
Package admin is the API of a running host for the verbs of pointsman and for an operator's scripts:
HTTP and JSON on a unix socket that only its owner may open. It has the types, the client, and the
server, which calls the functions of a Backend and decides nothing itself.

	GET  /v1/status                     Status
	GET  /v1/services                   ServiceList
	GET  /v1/services/NAMESPACE/NAME    ServiceDetail
	GET  /v1/explain?from=SRC&to=DST    Explanation
	GET  /v1/plugins                    PluginList
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

GET only reads, and POST changes something. Every body has apiVersion and kind, and is also what a
verb prints with -o json. Within v1 fields are only added. The types are not shared with other
packages, so that a change elsewhere cannot change the API unnoticed. Start reading at Backend (server.go).
*/
package admin

import (
	"encoding/json"
	"time"
)

// APIVersion is the apiVersion of every body.
const APIVersion = "pointsman.dev/v1"

// Meta is in every body.
type Meta struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

func (m *Meta) setMeta(kind string) { *m = Meta{APIVersion, kind} }

// A Status is the state of a host, on one screen.
type Status struct {
	Meta
	Healthy   bool      `json:"healthy"` // there are no Warnings
	Node      Node      `json:"node"`
	Host      Host      `json:"host"`
	Source    string    `json:"source"` // where Services come from
	Mode      string    `json:"mode"`
	Auto      string    `json:"auto,omitempty"` // if the config file says auto: the chosen mode, since when, and why
	Dataplane Plugin    `json:"dataplane"`
	Swap      *Swap     `json:"swap,omitempty"` // the swap in progress
	LastSwap  *Swapped  `json:"lastSwap,omitempty"`
	Sync      Sync      `json:"sync"`
	Services  Counts    `json:"services"`
	Unserved  []Problem `json:"unserved"` // Services that are not served as specified
	Config    ConfigUse `json:"config"`
	Probes    Probes    `json:"probes"`
	Warnings  []Warning `json:"warnings"`
}

// Probes are the current answers of the probes; true means 200.
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

// A Sync is the progress of the dataplane.
type Sync struct {
	Sent    uint64    `json:"sent"`    // last revision sent
	Acked   uint64    `json:"acked"`   // last revision confirmed
	Served  uint64    `json:"served"`  // equal to Acked: confirmed revisions are served
	Pending int       `json:"pending"` // Services owed or in flight
	Last    time.Time `json:"last"`    // time of the last confirmation; zero if none
	TookMS  float64   `json:"tookMilliseconds"`
	Error   string    `json:"error,omitempty"` // error of the last update; empty if it succeeded
}

// Counts are the numbers of known objects.
type Counts struct {
	Services       int `json:"services"`
	Ports          int `json:"ports"` // ports of Services, counted once per IP family
	EndpointSlices int `json:"endpointSlices"`
	Endpoints      int `json:"endpoints"`
}

// A Problem is a reason why a Service is not served as specified.
type Problem struct {
	Service string `json:"service"`
	Reason  string `json:"reason"` // failed, refused, withheld, conflict, invalid
	Why     string `json:"why"`
}

// A ConfigUse relates the current settings to the config file.
type ConfigUse struct {
	Path    string    `json:"path"` // empty if there is no file, only defaults, flags and environment
	Hash    string    `json:"hash"`
	Loaded  time.Time `json:"loaded"`
	Stale   string    `json:"stale,omitempty"` // why the current content of the file is not in use
	Pending []string  `json:"pending"`         // changed fields that need a restart
}

// A Warning is something that needs attention. Its code never changes and is explained in
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
	Lock     string    `json:"lock,omitempty"`   // the writer's lock of the mode: awaited while another process holds it; held after a successful update or role change, also if the mode needs no lock
	Holder   string    `json:"holder,omitempty"` // the process that holds an awaited lock
	PID      int       `json:"pid,omitempty"`
	Up       time.Time `json:"up,omitzero"`
	Restarts int       `json:"restarts"`
	Debug    bool      `json:"debug,omitempty"` // its process is not killed if it hangs
	LastEnd  string    `json:"lastEnd,omitempty"`
	EndedAt  time.Time `json:"endedAt,omitzero"`
	Next     time.Time `json:"next,omitzero"` // when it will be restarted
	Call     string    `json:"call,omitempty"`
	Waiting  string    `json:"waiting,omitempty"`
	Notes    []string  `json:"notes,omitempty"` // observations about the node that affect no Service
	Memory   uint64    `json:"memoryBytes,omitempty"`
	Features []string  `json:"features,omitempty"`
	Limits   []string  `json:"limits,omitempty"`

	Options json.RawMessage `json:"optionsSchema,omitempty"`
}

// A PluginList is all plugins found.
type PluginList struct {
	Meta
	Items []Plugin `json:"items"`
}

// A Check is the result of the verb check of a plugin's binary: whether it can run on this
// node.
type Check struct {
	Meta
	Name    string   `json:"name"`
	Path    string   `json:"path"`
	Runs    bool     `json:"runs"`
	Why     string   `json:"why,omitempty"`   // why it cannot run
	Field   string   `json:"field,omitempty"` // the setting that it refuses, such as options.scheduler; empty if it is not a single setting
	Version string   `json:"version"`
	Lacks   []string `json:"lacks"` // features that do not work on this node
	Notes   []string `json:"notes"` // observations that affect no Service

	SwapImpact string `json:"swapImpact,omitempty"` // what a swap to it would interrupt
}

// A MovePlan lists what would change on a node if Pointsman replaced kube-proxy.
type MovePlan struct {
	Meta
	PID      int      `json:"pid,omitempty"` // process ID of kube-proxy
	Config   string   `json:"config"`        // its configuration file
	From     string   `json:"from"`          // its mode
	To       string   `json:"to"`
	Settings []string `json:"settings"`        // settings that are not taken over
	Taken    []string `json:"taken"`           // kube-proxy's rules that Pointsman would take over
	Left     []string `json:"left"`            // rules that kube-proxy would leave behind
	Kept     []string `json:"kept,omitempty"`  // those of them that stay, because rules of other programs refer to them
	Notes    []string `json:"notes,omitempty"` // what could not be checked
	Back     string   `json:"back"`            // how to go back to kube-proxy
}

// A Config is the current settings.
type Config struct {
	Meta
	Use      ConfigUse       `json:"use"`
	Settings json.RawMessage `json:"settings"`
}

// An Event is something that happened, with the number of occurrences.
type Event struct {
	Time    time.Time `json:"time"`
	Warning bool      `json:"warning"`
	Reason  string    `json:"reason"`
	Object  string    `json:"object,omitempty"`
	Message string    `json:"message"`
	Count   int       `json:"count"`
}

// An EventList is the recent events, the latest last.
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

// Done is the response to a POST.
type Done struct {
	Meta
	Message string `json:"message"`
}

// An Error says what failed, why, and what to do. It is the body of every unsuccessful
// response, and an error on both sides of the socket.
type Error struct {
	Code int    `json:"-"` // HTTP status; zero means 500
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
