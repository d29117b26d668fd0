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
	"net/url"
	"strconv"
	"time"
)

// ErrUnreachable is wrapped by a Client's errors if no host answers.
var ErrUnreachable = errors.New("no host answers")

// maxBody limits the size of a response: ten thousand Services with ten endpoints each take
// about ten megabytes.
const maxBody = 256 << 20

// A Client sends requests to a running host. It is safe for concurrent use.
type Client struct {
	socket string
	http   http.Client
}

// NewClient returns a client for the host with the admin socket at path.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		return Dial(ctx, path)
	}
	return &Client{socket: path, http: http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Status returns the status of the host.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return ask[Status](ctx, c, http.MethodGet, "status")
}

// Services returns all Services.
func (c *Client) Services(ctx context.Context) (ServiceList, error) {
	return ask[ServiceList](ctx, c, http.MethodGet, "services")
}

// Service returns one Service and its state in the dataplane.
func (c *Client) Service(ctx context.Context, namespace, name string) (ServiceDetail, error) {
	return ask[ServiceDetail](ctx, c, http.MethodGet, "services/"+url.PathEscape(namespace)+"/"+url.PathEscape(name))
}

// Explain explains what happens to a packet. See ParseQuestion for from and to. With try the
// host also connects to the endpoints.
func (c *Client) Explain(ctx context.Context, from, to string, try bool) (Explanation, error) {
	return ask[Explanation](ctx, c, http.MethodGet, fmt.Sprintf("explain?from=%s&to=%s&try=%t", url.QueryEscape(from), url.QueryEscape(to), try))
}

// Watch calls f for each packet that the host reports, until ctx ends. from and to are as for Explain;
// if they are empty, the host reports all packets that a rule drops or rejects.
func (c *Client) Watch(ctx context.Context, from, to string, f func(Watched)) error {
	path := "watch"
	if to != "" {
		path += "?" + url.Values{"from": {from}, "to": {to}}.Encode()
	}
	err := lines(ctx, c, http.MethodPost, path, f)
	if err == nil && ctx.Err() == nil {
		err = errors.New("the host ended the watch early; try: pointsman status")
	}
	return err
}

// Events returns the recent events.
func (c *Client) Events(ctx context.Context) (EventList, error) {
	return ask[EventList](ctx, c, http.MethodGet, "events")
}

// Plugins returns all plugins.
func (c *Client) Plugins(ctx context.Context) (PluginList, error) {
	return ask[PluginList](ctx, c, http.MethodGet, "plugins")
}

// Text returns the raw response to GET /v1/path.
func (c *Client) Text(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	body, err := c.do(ctx, http.MethodGet, path)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(io.LimitReader(body, maxBody))
}

// Config returns the current settings.
func (c *Client) Config(ctx context.Context) (Config, error) {
	return ask[Config](ctx, c, http.MethodGet, "config")
}

// Restart restarts a plugin.
func (c *Client) Restart(ctx context.Context, name string) (Done, error) {
	return ask[Done](ctx, c, http.MethodPost, "plugins/"+name+"/restart")
}

// Mode returns the serving mode and the state of swaps.
func (c *Client) Mode(ctx context.Context) (Mode, error) {
	return ask[Mode](ctx, c, http.MethodGet, "mode")
}

// Diff returns where the kernel differs from the desired state.
func (c *Client) Diff(ctx context.Context) (Diff, error) {
	return ask[Diff](ctx, c, http.MethodGet, "diff")
}

// SwapMode starts a swap.
func (c *Client) SwapMode(ctx context.Context, a SwapAsk) (Done, error) {
	q := url.Values{"to": {a.To}, "force": {strconv.FormatBool(a.Force)}, "dryRun": {strconv.FormatBool(a.DryRun)}}
	return ask[Done](ctx, c, http.MethodPost, "mode/swap?"+q.Encode())
}

// ResetMode goes back to the mode of the config file.
func (c *Client) ResetMode(ctx context.Context) (Done, error) {
	return ask[Done](ctx, c, http.MethodPost, "mode/reset")
}

// Logs calls f for each stored line of a plugin's log and, with follow, for each new line until
// ctx ends.
func (c *Client) Logs(ctx context.Context, name string, follow bool, f func(LogLine)) error {
	path := "plugins/" + name + "/logs"
	if follow {
		path += "?follow=1"
	}
	return lines(ctx, c, http.MethodGet, path, f)
}

// lines calls f for each line of a response, until the response or ctx ends.
func lines[T any](ctx context.Context, c *Client, method, path string, f func(T)) error {
	body, err := c.do(ctx, method, path)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	defer body.Close()
	scanner := bufio.NewScanner(body)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var line T
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			return fmt.Errorf("read the host's answer: %w", err)
		}
		f(line)
	}
	if ctx.Err() != nil {
		return nil
	}
	return scanner.Err()
}

func ask[T any](ctx context.Context, c *Client, method, path string) (answer T, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	body, err := c.do(ctx, method, path)
	if err != nil {
		return answer, err
	}
	defer body.Close()
	err = decode(body, &answer)
	return answer, err
}

// do returns the body of a successful response, or the host's error.
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
		e.Why = "the host may be of another version"
	}
	return nil, e
}

func decode(body io.Reader, into any) error {
	if err := json.NewDecoder(io.LimitReader(body, maxBody)).Decode(into); err != nil {
		return fmt.Errorf("read the host's answer: %w", err)
	}
	return nil
}

// unreachable returns an error that explains why no host answers and what to do.
func (c *Client) unreachable(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: there is no socket %s; is it running (pointsman run), and with this --admin-socket?", ErrUnreachable, c.socket)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: only its owner may open %s; try: as the user that runs the host, such as with sudo", ErrUnreachable, c.socket)
	}
	return fmt.Errorf("%w on %s: %w", ErrUnreachable, c.socket, err)
}
