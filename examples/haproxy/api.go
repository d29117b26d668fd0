// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// An api is the runtime API of one process of HAProxy, by the path of its socket.
type api string

// answerTime is how long HAProxy may take for the commands of one line.
const answerTime = 20 * time.Second

// maxLine is how much HAProxy reads as one line, with room to spare.
const maxLine = 12 << 10

// ask runs commands, in order, and returns what HAProxy answers to all of them. An answer may
// say that a command failed: the caller reads afterwards what it is about.
func (a api) ask(ctx context.Context, commands ...string) (string, error) {
	var answers strings.Builder
	for len(commands) > 0 {
		n, size := 0, 0
		for n < len(commands) && (n == 0 || size+len(commands[n]) < maxLine) {
			size += len(commands[n]) + 1
			n++
		}
		answer, err := a.line(ctx, strings.Join(commands[:n], ";"))
		if err != nil {
			return "", fmt.Errorf("HAProxy's runtime API, %.80q: %w", commands[0], err)
		}
		answers.WriteString(answer)
		commands = commands[n:]
	}
	return answers.String(), nil
}

func (a api) line(ctx context.Context, line string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", string(a))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := io.WriteString(conn, line+"\n"); err != nil {
		return "", errors.Join(ctx.Err(), err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return "", errors.Join(ctx.Err(), err)
	}
	return string(answer), nil
}

// pid returns the process that answers.
func (a api) pid(ctx context.Context) (int, error) {
	answer, err := a.ask(ctx, "show info")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(answer) {
		if text, ok := strings.CutPrefix(line, "Pid: "); ok {
			return strconv.Atoi(strings.TrimSpace(text))
		}
	}
	return 0, errors.New("HAProxy does not say which process it is")
}

// A server is an endpoint as HAProxy has it.
type server struct {
	id    int
	at    netip.AddrPort
	ready bool
}

// servers returns those of one section, or with an empty name of all of them.
func (a api) servers(ctx context.Context, section string) (map[string][]server, error) {
	answer, err := a.ask(ctx, strings.TrimSpace("show servers state "+section))
	if err != nil {
		return nil, err
	}
	return parseServers(answer)
}

// parseServers reads what "show servers state" answers: a version, a line of headings, and a
// line for each server.
func parseServers(answer string) (map[string][]server, error) {
	const backend, id, name, address, admin, port = 1, 2, 3, 4, 6, 18
	all := make(map[string][]server)
	for line := range strings.Lines(answer) {
		word := strings.Fields(line)
		if len(word) <= 1 || word[0] == "#" {
			continue
		}
		if len(word) <= port {
			return nil, fmt.Errorf("show servers state: unexpected %.80q", line)
		}
		at, err := netip.ParseAddr(word[address])
		number, portErr := strconv.ParseUint(word[port], 10, 16)
		known, idErr := strconv.Atoi(word[id])
		if err := errors.Join(err, portErr, idErr); err != nil {
			return nil, fmt.Errorf("show servers state: server %s/%s: %w", word[backend], word[name], err)
		}
		s := server{id: known, at: netip.AddrPortFrom(at, uint16(number)), ready: word[admin] == "0"}
		all[word[backend]] = append(all[word[backend]], s)
	}
	return all, nil
}

// with returns a section with the servers that HAProxy has for it.
func (s section) with(servers []server) running {
	r := running{section: s}
	r.Endpoints = nil
	for _, has := range servers {
		if has.ready {
			r.Endpoints = append(r.Endpoints, has.at)
		} else {
			r.resting = append(r.resting, has.at)
		}
	}
	slices.SortFunc(r.Endpoints, netip.AddrPort.Compare)
	return r
}

// A client keeps an endpoint.
type client struct {
	addr   netip.Addr
	server int // by id
	left   time.Duration
	called bool // since it was written by the runtime API
}

// clients returns those of one section's table.
func (a api) clients(ctx context.Context, n sdk.Name) ([]client, error) {
	answer, err := a.ask(ctx, "show table "+sectionName(n))
	if err != nil {
		return nil, err
	}
	return parseClients(answer)
}

// parseClients reads what "show table" answers:
//
//	# table: ns1.web.http.tcp4, type: ip, size:65536, used:1
//	0x55ed6e40a800: key=10.0.0.7 use=0 exp=10796771 server_id=2 server_key=10.180.0.1:8080
//
// Only a connection sets server_key.
func parseClients(answer string) (all []client, err error) {
	for line := range strings.Lines(answer) {
		values := make(map[string]string)
		for _, word := range strings.Fields(line) {
			key, value, _ := strings.Cut(word, "=")
			values[key] = value
		}
		if values["key"] == "" {
			continue
		}
		addr, err := netip.ParseAddr(values["key"])
		left, leftErr := strconv.ParseInt(values["exp"], 10, 64)
		id, idErr := strconv.Atoi(values["server_id"])
		if err := errors.Join(err, leftErr, idErr); err != nil {
			return nil, fmt.Errorf("show table: unexpected %.120q: %w", line, err)
		}
		called := values["server_key"] != "" && values["server_key"] != "-"
		all = append(all, client{addr, id, time.Duration(left) * time.Millisecond, called})
	}
	return all, nil
}
