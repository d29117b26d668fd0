// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestStoppedAndSpared stops a plugin as a breakpoint does. One that runs by itself, and one that is
// debugged, stays: it is reported, the node is not ready, and it serves on when it goes on.
func TestStoppedAndSpared(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"at an address", "debugged"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			with := "debug: true"
			if form == "at an address" {
				socket := s.path("own/userspace.sock")
				listening(t, socket)
				with = "address: 'unix://" + socket + "'"
			}
			s.write("host.yaml", strings.Replace(s.text(""), "{userspace: {", "{userspace: {"+with+", ", 1))
			backend(t, at(s.net+"101"))
			s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
			s.start()
			s.served("tcp", s.net+"10:18080")
			if form == "debugged" {
				s.until("status warns of it", func() error { return s.warning("W021", "is debugged") })
			}
			pid := s.plugin()
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
			s.until("status says that it does not answer", func() error { return s.warning("W001", "is suspect") })
			s.until("there is an event", func() error { return s.event("PluginDown", "") })
			time.Sleep(8 * time.Second) // longer than any other plugin may hang
			if st, err := s.Status(t.Context()); err != nil || st.Dataplane.State != "suspect" || st.Dataplane.PID != pid || !alive(pid) {
				t.Errorf("after it was stopped for long: %s, process %d, %v", st.Dataplane.State, st.Dataplane.PID, err)
			}
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			s.until("it serves again", func() error {
				st, err := s.Status(t.Context())
				if err == nil && (st.Dataplane.State != "serving" || st.Dataplane.PID != pid || st.Dataplane.Restarts != 0) {
					err = fmt.Errorf("%s, process %d, %d restarts", st.Dataplane.State, st.Dataplane.PID, st.Dataplane.Restarts)
				}
				return err
			})
			s.served("tcp", s.net+"10:18080")
		})
	}
}

// TestStateByHand writes what the plugin of a running host is sent, and sends it to another one by
// hand, in both forms.
func TestStateByHand(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	backend(t, at(s.net+"101"))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	s.start()
	s.served("tcp", s.net+"10:18080")
	dump := s.verb("state", "dump")
	if dump.code != 0 || !strings.Contains(dump.out, "kind: State\n") || !strings.Contains(dump.out, "service: web") {
		t.Fatalf("state dump says %+v", dump)
	}
	// The host's own plugin has the addresses: the other one gets some of its own.
	net := ownNet(t)
	file := s.path("state.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(dump.out, s.net, net)), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(s.dir, "by/hand")
	listening(t, socket)
	s.until("it listens", func() error {
		if got := s.verb("plugin", "call", "unix://"+socket, "--state", file, "--options", neverRedirect); got.code != 0 {
			return errors.New(got.err)
		}
		return nil
	})
	for _, to := range []string{plugin(t), "unix://" + socket} {
		got := s.verb("plugin", "call", to, "--state", file, "--role", "active", "--options", neverRedirect)
		if got.code != 0 || !strings.Contains(got.out, "confirmed what it was sent, 1 port") || !strings.Contains(got.out, "serves: ns/web") {
			t.Errorf("plugin call %s says %+v", to, got)
		}
	}
	backend(t, at(net+"101"))
	s.served("tcp", net+"10:18080") // by the one that runs by itself, which keeps what it was sent
	got := s.verb("plugin", "call", plugin(t), "--state", file, "--options", neverRedirect, "-o", "json")
	var answer struct {
		Kind, Role string
		Sent       int
		Served     []string
	}
	if err := json.Unmarshal([]byte(got.out), &answer); err != nil || answer.Kind != "Call" || answer.Role != "standby" || answer.Sent != 1 || len(answer.Served) != 1 {
		t.Errorf("%v: %+v says %+v", err, answer, got)
	}
	for words, want := range map[string]string{
		"plugin call " + plugin(t):                                     "--state: want the file",
		"plugin call " + plugin(t) + " --state " + s.path("host.yaml"): "unknown field",
		"plugin call " + plugin(t) + " --state x --role leader":        "want standby, active, draining or yielded",
	} {
		if got := s.verb(strings.Fields(words)...); got.code == 0 || !strings.Contains(got.err, want) {
			t.Errorf("%s says %+v, want %q", words, got, want)
		}
	}
}

// TestDocOfDebugging sends the state that docs/debugging.md shows, as the page says, and reads the
// configurations that it shows.
func TestDocOfDebugging(t *testing.T) {
	t.Parallel()
	doc := read(t, "../docs/debugging.md")
	s := newSystem(t)
	net := ownNet(t)
	configs := 0
	for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(doc, -1) {
		text := block[1]
		switch {
		case strings.Contains(text, "kind: State"):
			s.write("state.yaml", strings.ReplaceAll(text, "127.30.0.", net))
		case strings.Contains(text, "kind: HostConfig"):
			s.write("shown.yaml", text)
			if got := s.verb("config", "validate", "--file-only", s.path("shown.yaml")); got.code != 0 {
				t.Errorf("the page shows a config that is wrong: %+v", got)
			}
			configs++
		case strings.Contains(text, "debug: true"):
			s.write("debug.yaml", "apiVersion: pointsman.dev/v1alpha1\nkind: HostConfig\nmode: acme\nsource: {files: {path: services}}\n"+text)
			if got := s.verb("config", "validate", "--file-only", s.path("debug.yaml")); got.code != 0 {
				t.Errorf("the page shows a config that is wrong: %+v", got)
			}
			configs++
		}
	}
	if configs != 2 {
		t.Errorf("the page shows %d configs", configs)
	}
	command := regexp.MustCompile(`(?m)^\$ pointsman (plugin call --state .*) /usr/libexec/pointsman/pointsman-dataplane-userspace$`).FindStringSubmatch(doc)
	if command == nil {
		t.Fatal("the page shows no plugin call")
	}
	shown, options, _ := strings.Cut(strings.Replace(command[1], "state.yaml", s.path("state.yaml"), 1), " --options ")
	words := append(strings.Fields(shown), "--options", strings.Trim(options, "'"), plugin(t))
	if got := s.verb(words...); got.code != 0 || !strings.Contains(got.out, "serves: shop/web/tcp4") {
		t.Errorf("%v says %+v", words, got)
	}
}
