// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"time"
)

// ErrUnreachable is what a Client's errors wrap when no host answers.
var ErrUnreachable = errors.New("no host answers")

// maxBody bounds what a client reads of an answer: ten thousand Services with ten
// endpoints each are about ten megabytes.
const maxBody = 256 << 20

// A Client asks a running host. It is safe for concurrent use.
type Client struct {
	socket string
	http   http.Client
}

// NewClient returns a client of the host on the unix socket at path.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "unix", path)
	}
	return &Client{socket: path, http: http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Status asks how the host is doing.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.get(ctx, "status", &s)
}

// Services asks for all Services.
func (c *Client) Services(ctx context.Context) (l ServiceList, err error) {
	return l, c.get(ctx, "services", &l)
}

// Plugins asks for all plugins.
func (c *Client) Plugins(ctx context.Context) (l PluginList, err error) {
	return l, c.get(ctx, "plugins", &l)
}

// Plugin asks for one.
func (c *Client) Plugin(ctx context.Context, name string) (p Plugin, err error) {
	return p, c.get(ctx, "plugins/"+name, &p)
}

// Config asks for the settings in force.
func (c *Client) Config(ctx context.Context) (conf Config, err error) {
	return conf, c.get(ctx, "config", &conf)
}

// Events asks what happened lately.
func (c *Client) Events(ctx context.Context) (l EventList, err error) {
	return l, c.get(ctx, "events", &l)
}

// Restart starts a plugin anew.
func (c *Client) Restart(ctx context.Context, name string) (d Done, err error) {
	return d, c.post(ctx, "plugins/"+name+"/restart", &d)
}

// Logs calls f for each line of a plugin's log, and with follow for each that
// comes, until ctx ends.
func (c *Client) Logs(ctx context.Context, name string, follow bool, f func(LogLine)) error {
	path := "plugins/" + name + "/logs"
	if follow {
		path += "?follow=1"
	}
	body, err := c.do(ctx, http.MethodGet, path)
	if err != nil {
		return err
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l LogLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return fmt.Errorf("read the log of %s: %w", name, err)
		}
		f(l)
	}
	if ctx.Err() != nil {
		return nil
	}
	return lines.Err()
}

func (c *Client) get(ctx context.Context, path string, into any) error {
	return c.ask(ctx, http.MethodGet, path, into)
}

func (c *Client) post(ctx context.Context, path string, into any) error {
	return c.ask(ctx, http.MethodPost, path, into)
}

func (c *Client) ask(ctx context.Context, method, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	body, err := c.do(ctx, method, path)
	if err != nil {
		return err
	}
	defer body.Close()
	return decode(body, into)
}

// do returns the body of a successful answer, or the host's error.
func (c *Client) do(ctx context.Context, method, path string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://pointsman/v1/"+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer response.Body.Close()
	e := &Error{Code: response.StatusCode}
	if decode(response.Body, e) != nil || e.What == "" {
		e.What = fmt.Sprintf("%s /v1/%s: %s", method, path, response.Status)
		e.Why = "the host is of another version, perhaps"
	}
	return nil, e
}

func decode(body io.Reader, into any) error {
	if err := json.NewDecoder(io.LimitReader(body, maxBody)).Decode(into); err != nil {
		return fmt.Errorf("read the host's answer: %w", err)
	}
	return nil
}

// unreachable says why nothing answers, and what would help.
func (c *Client) unreachable(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: there is no socket %s; is it running (pointsman run), and with this --admin-socket?", ErrUnreachable, c.socket)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %s may only be opened by its owner; try as the user that runs the host, such as with sudo", ErrUnreachable, c.socket)
	}
	return fmt.Errorf("%w on %s: %w", ErrUnreachable, c.socket, err)
}
