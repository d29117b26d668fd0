// SPDX-License-Identifier: Apache-2.0

// Package chromium loads pages in a headless browser, and returns what a person would see and what a screen reader would
// read. It uses the browser's own protocol (Chrome DevTools) over a pipe, so it needs neither an
// open port nor a library. Start reading at Open.
package chromium

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/test/eventually"
)

// A Tab is a tab of a browser that ends with the test. Only one goroutine may use it.
type Tab struct {
	t       testing.TB
	session string
	to      *os.File
	last    int // id of a command

	mu      sync.Mutex // guards what follows
	answers map[int]message
	loads   int      // pages that have been loaded
	errors  []string // what the browser found wrong
	ended   bool
}

// A message is a command, its answer, or an event.
type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    any             `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     json.RawMessage `json:"error,omitempty"`
}

// Open starts a browser with one empty tab. It skips the test on a machine without Chromium.
func Open(t testing.TB) *Tab {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a browser")
	}
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("needs chromium: apt-get install chromium")
	}
	tab := &Tab{t: t, answers: make(map[int]message)}
	tab.start(path)
	var target struct{ TargetID string }
	tab.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	tab.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	tab.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Accessibility"} {
		tab.call(domain+".enable", nil, nil)
	}
	return tab
}

// start starts the browser, and a goroutine that reads its messages until it ends.
func (tab *Tab) start(path string) {
	tab.t.Helper()
	theirs, to, err := os.Pipe()
	from, theirOut, err2 := os.Pipe()
	if err := errors.Join(err, err2); err != nil {
		tab.t.Fatal(err)
	}
	tab.to = to
	dir, err := os.MkdirTemp("", "chromium-")
	if err != nil {
		tab.t.Fatal(err)
	}
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-breakpad", "--no-proxy-server", "--remote-debugging-pipe", "--user-data-dir="+filepath.Join(dir, "profile"))
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir)
	cmd.ExtraFiles = []*os.File{theirs, theirOut} // 3 and 4, as the protocol requires
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		tab.t.Fatal(err)
	}
	_, _ = theirs.Close(), theirOut.Close()
	read := make(chan struct{})
	go func() { // until the browser and all that it started have ended
		defer close(read)
		tab.read(from)
	}()
	tab.t.Cleanup(func() {
		_ = to.Close()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // and what it started
		_ = cmd.Wait()
		<-read
		_ = from.Close()
		eventually.Succeeds(tab.t, "what the browser wrote is removed", func() error { return os.RemoveAll(dir) }) // not while one of its processes writes there
	})
}

// read handles the browser's messages.
func (tab *Tab) read(from *os.File) {
	in := bufio.NewReader(from)
	for {
		text, err := in.ReadBytes(0)
		if err != nil {
			tab.mu.Lock()
			tab.ended = true
			tab.mu.Unlock()
			return
		}
		tab.take(bytes.TrimSuffix(text, []byte{0}))
	}
}

// take handles one message.
func (tab *Tab) take(text []byte) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	var m message
	if err := json.Unmarshal(text, &m); err != nil {
		tab.errors = append(tab.errors, err.Error())
		return
	}
	switch m.Method {
	case "":
		tab.answers[m.ID] = m
	case "Page.loadEventFired":
		tab.loads++
	case "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded":
		tab.errors = append(tab.errors, string(text))
	}
}

// call sends the browser a command, and decodes the answer into result unless that is nil.
func (tab *Tab) call(method string, params, result any) {
	tab.t.Helper()
	tab.last++
	text, err := json.Marshal(message{ID: tab.last, SessionID: tab.session, Method: method, Params: params})
	if err == nil {
		_, err = tab.to.Write(append(text, 0))
	}
	if err != nil {
		tab.t.Fatalf("%s: %v", method, err)
	}
	var answer message
	eventually.Succeeds(tab.t, "the browser answers "+method, func() error {
		tab.mu.Lock()
		defer tab.mu.Unlock()
		var ok bool
		if answer, ok = tab.answers[tab.last]; ok {
			delete(tab.answers, tab.last)
			return nil
		}
		if tab.ended {
			return eventually.Final(errors.New("the browser has ended"))
		}
		return errors.New("no answer yet")
	})
	if answer.Error != nil {
		tab.t.Fatalf("%s: %s", method, answer.Error)
	}
	if result != nil {
		if err := json.Unmarshal(answer.Result, result); err != nil {
			tab.t.Fatalf("%s: %v", method, err)
		}
	}
}

// Go loads a page, and waits until it is complete.
func (tab *Tab) Go(url string) {
	tab.t.Helper()
	tab.mu.Lock()
	before := tab.loads
	tab.mu.Unlock()
	var answer struct{ ErrorText string }
	tab.call("Page.navigate", map[string]any{"url": url}, &answer)
	if answer.ErrorText != "" {
		tab.t.Fatalf("%s: %s", url, answer.ErrorText)
	}
	eventually.True(tab.t, url+" is loaded", func() bool {
		tab.mu.Lock()
		defer tab.mu.Unlock()
		return tab.loads > before
	})
}

// Eval returns the value of an expression of JavaScript as text.
func (tab *Tab) Eval(expression string) string {
	tab.t.Helper()
	var answer struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	tab.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &answer)
	if answer.ExceptionDetails != nil {
		tab.t.Fatalf("%s: %s", expression, answer.ExceptionDetails)
	}
	return fmt.Sprint(answer.Result.Value)
}

// Press presses and releases a key, such as Tab.
func (tab *Tab) Press(key string, code int) {
	tab.t.Helper()
	for _, kind := range []string{"rawKeyDown", "keyUp"} {
		tab.call("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}, nil)
	}
}

// Show sets the size of the tab in pixels, and the colours that a person prefers: light or dark.
func (tab *Tab) Show(width, height int, colours string) {
	tab.t.Helper()
	tab.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
	tab.call("Emulation.setEmulatedMedia", map[string]any{"features": []any{map[string]any{"name": "prefers-color-scheme", "value": colours}}}, nil)
}

// Named lists what a screen reader finds: "link Services", "table Events".
func (tab *Tab) Named() []string {
	tab.t.Helper()
	var tree struct {
		Nodes []struct {
			Ignored    bool
			Role, Name struct{ Value any }
		}
	}
	tab.call("Accessibility.getFullAXTree", nil, &tree)
	var list []string
	for _, n := range tree.Nodes {
		if !n.Ignored && n.Role.Value != nil && n.Name.Value != nil {
			list = append(list, strings.TrimSpace(fmt.Sprint(n.Role.Value, " ", n.Name.Value)))
		}
	}
	return list
}

// Errors returns what the browser has reported since the last call: exceptions, output of the console, violations of a
// policy, what could not be loaded.
func (tab *Tab) Errors() []string {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	found := tab.errors
	tab.errors = nil
	return found
}
