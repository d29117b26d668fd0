// SPDX-License-Identifier: Apache-2.0

package test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"

	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// escapes would take over a terminal and forge a log line.
const escapes = "\x1b]0;owned\x07\x1b[2J\r\n2026-01-01T00:00:00Z [ERROR] forged\x00"

// misbehaviours lists what a malicious plugin can do, with the warning of the status; says is empty if the status has no
// warning.
func misbehaviours() []struct {
	name    string
	answers answers
	says    string
} {
	stranger := &pb.ResultChunk{Failed: []*pb.Failure{{Name: &pb.Name{Namespace: escapes, Service: escapes}, Problem: &pb.Problem{Message: strings.Repeat(escapes, 100)}}}}
	return []struct {
		name    string
		answers answers
		says    string
	}{
		{"a name of a megabyte", answers{"Hello": replies(&pb.HelloReply{Name: strings.Repeat("x", 1<<20), Majors: []uint32{1}})}, "larger than max"},
		{"a gigabyte for Hello", answers{"Hello": huge}, "larger than max"},
		{"Hello that drips", answers{"Hello": sendsOneByte}, "deadline"},
		{"rubbish for Hello", answers{"Hello": sendsGarbage}, "ask the plugin what it is"},
		{"a name that is not its own", answers{"Configure": replies(&pb.ConfigureReply{Description: &pb.Description{Name: escapes}})}, "calls itself"},
		{"a description of empty words", answers{"Configure": sendsEmptyFields(1, 1<<20)}, "calls itself"},
		{"a gigabyte for Configure", answers{"Configure": huge}, "larger than max"},
		{"an error of a megabyte", answers{"Configure": failsLoudly}, "configure"},
		{"no HTTP at all", answers{"connect": hangs}, "ask the plugin what it is"},
		{"only major 9", answers{"Hello": replies(&pb.HelloReply{Name: "malicious", Version: "9", Majors: []uint32{9}})}, "speaks [9] of the wire's majors"},
		{"failures without end", answers{"Sync": forever(stranger)}, "it answers with more than"},
		{"empty failures without end", answers{"Sync": sendsEmptyFields(1, 1<<20)}, "it answers with more than"},
		{"a gigabyte for Sync", answers{"Sync": huge}, "larger than max"},
		{"rubbish for Sync", answers{"Sync": sendsGarbage}, "Sync"},
		{"failures of strangers", answers{"Sync": replies(stranger, &pb.ResultChunk{})}, ""},
		{"empty samples", answers{"Report": sendsEmptyFields(5, 250<<10)}, ""},
		{"a Report of a megabyte", answers{"Report": sendsEmptyFields(5, 1<<20)}, "Report"},
		{"rubbish for Report", answers{"Report": sendsGarbage}, "Report"},
		{"Report that drips", answers{"Report": sendsOneByte}, "Report"},
		{"a gigabyte for Report", answers{"Report": huge}, "larger than max"},
		{"an inspection without end", answers{"Inspect": forever(&pb.InspectReply{Served: make([]*pb.Served, 1000)})}, "an address of 0 bytes"},
	}
}

// failsLoudly ends a call with an error of a megabyte.
func failsLoudly(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Grpc-Status", "2")
	w.Header().Set("Grpc-Message", strings.Repeat("x", 1<<20))
}

// TestMalice runs a malicious plugin. Whatever it does, the host lives, reports it, and does not grow.
func TestMalice(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	v := &malicious{t: t, socket: s.path("own/malicious.sock")}
	t.Cleanup(v.stop)
	s.write("host.yaml", strings.NewReplacer("mode: userspace", "mode: malicious", "plugins: {userspace: {options: {redirect: never}}}", "plugins: {malicious: {address: 'unix://"+v.socket+"'}}").Replace(s.text("")))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	v.play("")
	s.start()
	s.serving()
	for _, m := range misbehaviours() {
		v.play(m.name)
		s.within(3*time.Minute, "the host bears "+m.name, func() error { // the host may give the plugin up, and try it again
			if m.says != "" {
				// Only a process on trial is inspected: another one serves.
				if err := s.warnsOrRestart(m.says); err == nil || m.answers["Inspect"] == nil {
					return err
				}
			}
			st, err := s.Status(t.Context())
			if err == nil && (st.Dataplane.State != "serving" || st.Dataplane.PID != v.process.Process.Pid || st.Sync.Acked == 0) {
				err = s.anyWarning("nothing at all")
			}
			return err
		})
		for _, words := range [][]string{{"status"}, {"plugin", "info", "malicious"}, {"plugin", "logs", "malicious"}} {
			if got := s.verb(words...); strings.ContainsFunc(got.out+got.err, isControl) {
				t.Errorf("%s: %q says %.300q", m.name, words, got.out+got.err)
			}
		}
	}
	v.play("")
	s.serving()
	if most := memory(t, s.cmd.Process.Pid, "VmHWM:"); most > 256<<10 {
		t.Errorf("the host took up to %d KiB", most)
	}
	if log := s.log(); strings.ContainsFunc(log, isControl) || strings.Contains(log, "\n2026-01-01T00:00:00Z") {
		t.Error("the host's log has what the plugin forged")
	}
}

// warnsOrRestart finds a warning by a part of its text. It restarts a plugin that the host gave up: on a busy machine
// the plugin may not have answered yet.
func (s *system) warnsOrRestart(part string) error {
	err := s.anyWarning(part)
	if err != nil && s.anyWarning("is waiting") == nil {
		_, again := s.Restart(s.t.Context(), "malicious")
		err = errors.Join(err, again)
	}
	return err
}

// isControl reports whether a terminal would do anything but show r.
func isControl(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }

// anyWarning finds a warning by a part of its text.
func (s *system) anyWarning(part string) error {
	var err error
	for _, code := range []string{"W001", "W002", "W003"} {
		if err = s.warning(code, part); err == nil {
			return nil
		}
	}
	return err
}

// TestMaliceAside swaps from a plugin that serves to the malicious one: the swap is undone, and no call fails.
func TestMaliceAside(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	v := &malicious{t: t, socket: s.path("own/malicious.sock")}
	t.Cleanup(v.stop)
	s.write("host.yaml", strings.Replace(s.text(""), "plugins: {", "plugins: {malicious: {address: 'unix://"+v.socket+"'}, ", 1))
	backend(t, at(s.net+"101"))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	v.play("an inspection without end")
	s.start()
	s.serving()
	r := newClients(t, s.net+"10:18080")
	if got := s.verb("mode", "swap", "malicious", "--wait=5m"); got.code == 0 || !strings.Contains(got.out+got.err, "malicious") {
		t.Errorf("a change of mode to a malicious plugin says %+v", got)
	} else {
		t.Log(got.out + got.err)
	}
	s.until("the change is undone", func() error { return s.warning("W009", "malicious") })
	r.more(s, 50)
	r.Done(t, "requests while a malicious plugin was tried")
	s.served("tcp", s.net+"10:18080")
}
