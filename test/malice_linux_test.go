// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"google.golang.org/protobuf/proto"

	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// escapes would take over a terminal and forge a log line.
const escapes = "\x1b]0;owned\x07\x1b[2J\r\n2026-01-01T00:00:00Z [ERROR] forged\x00"

// answers are handlers by the name of the call. They speak the protocol byte by byte, so that they can send what no
// library would.
type answers map[string]http.HandlerFunc

// honest are the answers of a plugin that does nothing.
var honest = answers{
	"Hello":     replies(&pb.HelloReply{Name: "malicious", Version: "1", Majors: []uint32{1}}),
	"Configure": replies(&pb.ConfigureReply{Description: &pb.Description{Name: "malicious", Version: "1", Features: []string{"ipv4", "ipv6", "udp", "node-port"}}}),
	"Sync": func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		replies(&pb.ResultChunk{})(w, r)
	},
	"Report":   replies(&pb.ReportReply{}),
	"SetRole":  replies(&pb.SetRoleReply{}),
	"Cleanup":  replies(),
	"Shutdown": replies(&pb.ShutdownReply{}),
}

// misbehave serves answers at a socket, and honest ones to other calls, until the function that it returns is called.
func misbehave(t *testing.T, socket string, own answers) (stop func() error) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
		call := path.Base(r.URL.Path)
		switch {
		case own[call] != nil:
			own[call](w, r)
		case honest[call] != nil:
			honest[call](w, r)
		default:
			w.Header().Set("Grpc-Status", "12") // unimplemented
		}
	})}
	server.Protocols.SetUnencryptedHTTP2(true)
	go server.Serve(listener) // ends with Close
	return server.Close
}

// replies answers with the given messages.
func replies(all ...proto.Message) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, m := range all {
			_, _ = w.Write(frame(m))
		}
		w.Header().Set("Grpc-Status", "0")
	}
}

// frame frames a message as gRPC does.
func frame(m proto.Message) []byte {
	data, _ := proto.Marshal(m) // it cannot fail for these messages
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data))), data...)
}

// endless writes start and then block again and again until the caller gives up.
func endless(start, block []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		go io.Copy(io.Discard, r.Body) // ends with the call
		_, err := w.Write(start)
		for err == nil && r.Context().Err() == nil {
			_, err = w.Write(block)
		}
	}
}

// drips sends one byte and then nothing.
func drips(w http.ResponseWriter, r *http.Request) {
	_, _ = w.Write([]byte{0})
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// rubbish answers with random bytes.
func rubbish(w http.ResponseWriter, _ *http.Request) {
	data := binary.BigEndian.AppendUint32([]byte{0}, 4096)
	for range 512 {
		data = binary.BigEndian.AppendUint64(data, rand.Uint64())
	}
	_, _ = w.Write(data)
	w.Header().Set("Grpc-Status", "0")
}

// TestMalice runs plugins that misbehave, one after the other. The host reports each, lives, and does not grow.
func TestMalice(t *testing.T) {
	t.Parallel()
	stranger := &pb.ResultChunk{Failed: []*pb.Failure{{Name: &pb.Name{Namespace: escapes, Service: escapes}, Problem: &pb.Problem{Message: strings.Repeat(escapes, 100)}}}}
	huge := endless(binary.BigEndian.AppendUint32([]byte{0}, 1<<30), make([]byte, 1<<20)) // a message of a gigabyte
	s := newSystem(t)
	socket := s.path("own/malicious.sock")
	if err := os.Mkdir(s.path("own"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.write("host.yaml", strings.NewReplacer("mode: userspace", "mode: malicious", "plugins: {userspace: {options: {redirect: never}}}", "plugins: {malicious: {address: 'unix://"+socket+"'}}").Replace(s.text("")))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	stop := misbehave(t, socket, nil)
	s.start()
	s.serving()
	for _, m := range []struct {
		name    string
		answers answers
		says    string // the warning of the status; empty if there is none
	}{
		{"a gigabyte for Hello", answers{"Hello": huge}, "larger than max"},
		{"Hello that drips", answers{"Hello": drips}, "deadline"},
		{"rubbish for Hello", answers{"Hello": rubbish}, "ask the plugin what it is"},
		{"a name that is not its own", answers{"Configure": replies(&pb.ConfigureReply{Description: &pb.Description{Name: escapes}})}, "calls itself"},
		{"failures without end", answers{"Sync": endless(nil, frame(stranger))}, "it answers with more than"},
		{"rubbish for Report", answers{"Report": rubbish}, "Report"},
		{"failures of strangers", answers{"Sync": replies(stranger, &pb.ResultChunk{})}, ""},
	} {
		_ = stop()
		stop = misbehave(t, socket, m.answers)
		s.within(3*time.Minute, "the host bears "+m.name, func() error { // the host may give the plugin up, and try it again
			if m.says != "" {
				return s.warnsOrRestart(m.says)
			}
			st, err := s.Status(t.Context())
			if err == nil && (st.Dataplane.State != "serving" || st.Sync.Acked == 0) {
				err = errors.New(st.Dataplane.State)
			}
			return err
		})
		for _, words := range [][]string{{"status"}, {"plugin", "info", "malicious"}, {"plugin", "logs", "malicious"}} {
			if got := s.verb(words...); strings.ContainsFunc(got.out+got.err, isControl) {
				t.Errorf("%s: %q says %.300q", m.name, words, got.out+got.err)
			}
		}
	}
	_ = stop()
	peak := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindStringSubmatch(read(t, fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid)))
	if kib, err := strconv.Atoi(peak[1]); err != nil || kib > 256<<10 {
		t.Errorf("the host took up to %d KiB, %v", kib, err)
	}
	if log := s.log(); strings.ContainsFunc(log, isControl) || strings.Contains(log, "\n2026-01-01T00:00:00Z") {
		t.Error("the host's log has what the plugin forged")
	}
}

// warnsOrRestart finds a warning by a part of its text. It restarts a plugin that the host gave up: on a busy machine
// the plugin may not have answered yet.
func (s *system) warnsOrRestart(part string) error {
	var err error
	for _, code := range []string{"W001", "W002", "W003"} {
		if err = s.warning(code, part); err == nil {
			return nil
		}
	}
	if s.warning("W001", "is waiting") == nil {
		_, again := s.Restart(s.t.Context(), "malicious")
		err = errors.Join(err, again)
	}
	return err
}

// isControl reports whether a terminal would do anything but show r.
func isControl(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }
