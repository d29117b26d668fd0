// SPDX-License-Identifier: Apache-2.0

package test

import (
	"errors"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// escapes would take over a terminal that shows them, and forge a line of a log.
const escapes = "\x1b]0;owned\x07\x1b[2J\r\n2026-01-01T00:00:00Z [ERROR] forged\x00"

// malice is all that a villain can think of, and what the host says of it: in a
// warning of its status, or nothing where it can be borne.
func malice() []struct {
	name string
	tale tale
	says string
} {
	stranger := &pb.ResultChunk{Failed: []*pb.Failure{{Name: &pb.Name{Namespace: escapes, Service: escapes}, Problem: &pb.Problem{Message: strings.Repeat(escapes, 100)}}}}
	line := &pb.LogLine{Message: strings.Repeat(escapes, 20), Attrs: []*pb.LogAttr{{Key: escapes, Value: escapes}}}
	lines := &pb.LogsReply{}
	for range 400 {
		lines.Lines = append(lines.Lines, line)
	}
	return []struct {
		name string
		tale tale
		says string
	}{
		{"a name of a megabyte", tale{"Hello": says(&pb.HelloReply{Name: strings.Repeat("x", 1<<20), Majors: []uint32{1}})}, "larger than max"},
		{"a gigabyte for Hello", tale{"Hello": huge}, "larger than max"},
		{"Hello that drips", tale{"Hello": drips}, "deadline"},
		{"rubbish for Hello", tale{"Hello": raves}, "ask the plugin who it is"},
		{"a name that is not its own", tale{"Configure": says(&pb.ConfigureReply{Description: &pb.Description{Name: escapes}})}, "calls itself"},
		{"a description of empty words", tale{"Configure": empties(1, 1<<20)}, "calls itself"},
		{"a gigabyte for Configure", tale{"Configure": huge}, "larger than max"},
		{"an error of a megabyte", tale{"Configure": shouts}, "configure"},
		{"no HTTP at all", tale{"connect": hangs}, "ask the plugin who it is"},
		{"only major 9", tale{"Hello": says(&pb.HelloReply{Name: "villain", Version: "9", Majors: []uint32{9}, Needs: escapes})}, "or pointsman 9.0.0 or later as the host"},
		{"failures without end", tale{"Sync": forever(stranger)}, "it answers with more than"},
		{"empty failures without end", tale{"Sync": empties(1, 1<<20)}, "it answers with more than"},
		{"a gigabyte for Sync", tale{"Sync": huge}, "larger than max"},
		{"rubbish for Sync", tale{"Sync": raves}, "Sync"},
		{"failures of strangers", tale{"Sync": says(stranger, &pb.ResultChunk{Last: true})}, ""},
		{"empty samples", tale{"Report": empties(5, 250<<10)}, ""},
		{"a Report of a megabyte", tale{"Report": empties(5, 1<<20)}, "Report"},
		{"rubbish for Report", tale{"Report": raves}, "Report"},
		{"Report that drips", tale{"Report": drips}, "Report"},
		{"a gigabyte for Report", tale{"Report": huge}, "larger than max"},
		{"a log without end", tale{"Logs": forever(lines)}, ""},
		{"empty lines without end", tale{"Logs": forever(&pb.LogsReply{Lines: make([]*pb.LogLine, 200_000)})}, ""},
		{"rubbish for a log", tale{"Logs": raves}, ""},
		{"a gigabyte for a log", tale{"Logs": huge}, ""},
		{"a log and an inspection without end", tale{"Logs": forever(lines), "Inspect": forever(&pb.InspectReply{Served: make([]*pb.Served, 1000)})}, "an address of 0 bytes"},
	}
}

// shouts ends a call with an error of a megabyte.
func shouts(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Grpc-Status", "2")
	w.Header().Set("Grpc-Message", strings.Repeat("x", 1<<20))
}

// TestMalice has a plugin that means harm. Whatever it does, the host lives, says
// what is the matter, and does not grow.
func TestMalice(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	v := &villain{t: t, socket: s.path("own/villain.sock")}
	t.Cleanup(v.stop)
	s.write("host.yaml", strings.NewReplacer("mode: userspace", "mode: villain", "plugins: {userspace: {options: {redirect: never}}}", "plugins: {villain: {address: 'unix://"+v.socket+"'}}").Replace(s.text("")))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	v.play("")
	s.start()
	s.serving()
	pid, began := s.cmd.Process.Pid, time.Now()
	var size flatness
	for round := range rounds() {
		for _, m := range malice() {
			v.play(m.name)
			s.within(3*time.Minute, "the host bears "+m.name, func() error { // it may be given up, and tried again
				if m.says != "" {
					// Only a process on trial is asked to inspect: another serves.
					if err := s.says(m.says); err == nil || m.tale["Inspect"] == nil {
						return err
					}
				}
				st, err := s.Status(t.Context())
				if err == nil && (st.Dataplane.State != "serving" || st.Dataplane.PID != v.process.Process.Pid || st.Sync.Acked == 0) {
					err = s.anyWarning("nothing at all")
				}
				return err
			})
			size = append(size, resident(t, pid))
			for _, words := range [][]string{{"status"}, {"plugin", "info", "villain"}, {"plugin", "logs", "villain"}} {
				if got := s.verb(words...); strings.ContainsFunc(got.out+got.err, moves) {
					t.Errorf("%s: %q says %.300q", m.name, words, got.out+got.err)
				}
			}
		}
		v.play("")
		s.serving()
		t.Logf("round %d: the host has %d KiB resident, in this round at least %d, so far at most %d",
			round+1, resident(t, pid), slices.Min(size[len(size)-len(malice()):]), memory(t, pid, "VmHWM:"))
	}
	t.Logf("%d tales in %s: resident KiB %s", len(size), time.Since(began).Round(time.Second), size)
	if before, after := size.floors(); rounds() >= 5 && after > before+before/20 {
		t.Errorf("what the host keeps grew by more than 5 %%: from %d to %d KiB", before, after)
	}
	if most := memory(t, pid, "VmHWM:"); most > 256<<10 {
		t.Errorf("the host took up to %d KiB", most)
	}
	if log := s.log(); strings.ContainsFunc(log, moves) || strings.Contains(log, "\n2026-01-01T00:00:00Z") {
		t.Error("the host's log has what the plugin forged")
	}
}

// says finds a warning by a part of its text. A plugin that was given up is tried again:
// on a busy machine it may not have come as far as its tale.
func (s *system) says(part string) error {
	err := s.anyWarning(part)
	if err != nil && s.anyWarning("is quarantined") == nil {
		_, again := s.Restart(s.t.Context(), "villain")
		err = errors.Join(err, again)
	}
	return err
}

// rounds is how often the whole tale is told: more in a soak.
func rounds() int {
	n, _ := strconv.Atoi(os.Getenv("POINTSMAN_SOAK"))
	return max(n, 1)
}

// moves reports whether a terminal would do more than show r.
func moves(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }

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

// TestMaliceAside has the villain beside a plugin that serves: a change of mode to it
// is undone, and nobody notices.
func TestMaliceAside(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	v := &villain{t: t, socket: s.path("own/villain.sock")}
	t.Cleanup(v.stop)
	s.write("host.yaml", strings.Replace(s.text(""), "plugins: {", "plugins: {villain: {address: 'unix://"+v.socket+"'}, ", 1))
	backend(t, at(s.net+"101"))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	v.play("a log and an inspection without end")
	s.start()
	s.serving()
	r := newRush(t, s.net+"10:18080")
	if got := s.verb("mode", "swap", "villain", "--wait=60s"); got.code == 0 || !strings.Contains(got.out+got.err, "villain") {
		t.Errorf("a change of mode to a villain says %+v", got)
	} else {
		t.Log(got.out + got.err)
	}
	s.until("the change is undone", func() error { return s.warning("W009", "villain") })
	time.Sleep(200 * time.Millisecond) // of requests
	r.stop()
	if failed := r.failures(); len(failed) > 0 {
		t.Errorf("%d requests failed: %v", len(failed), failed[0])
	}
	s.served("tcp", s.net+"10:18080")
}
