// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// A malicious runs a plugin that means harm: this test binary, in another process. It speaks the protocol byte by byte,
// so that it can send what no library would. The calls among its answers misbehave; the others answer as a plugin
// should.
type malicious struct {
	t       *testing.T
	socket  string
	process *exec.Cmd
}

// answers are handlers by the name of the call.
type answers map[string]http.HandlerFunc

// maliciousEnv makes this binary the malicious plugin, and names its answers.
const maliciousEnv = "POINTSMAN_TEST_MALICIOUS"

// play kills the former process and starts the next.
func (v *malicious) play(name string) {
	v.t.Helper()
	v.stop()
	_ = os.Remove(v.socket)
	if err := os.MkdirAll(filepath.Dir(v.socket), 0o700); err != nil {
		v.t.Fatal(err)
	}
	v.process = exec.Command("/proc/self/exe", v.socket)
	v.process.Env = append(os.Environ(), maliciousEnv+"="+name)
	v.process.Stderr = os.Stderr
	v.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := v.process.Start(); err != nil {
		v.t.Fatal(err)
	}
}

func (v *malicious) stop() {
	if v.process != nil {
		_ = v.process.Process.Kill()
		_ = v.process.Wait()
	}
}

// playMalicious is the malicious process: it answers at a socket until it is killed.
func playMalicious(name, socket string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	var own answers
	for _, m := range misbehaviours() {
		if m.name == name {
			own = m.answers
		}
	}
	if own["connect"] != nil {
		return serveGarbage(listener)
	}
	server := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call := own[path.Base(r.URL.Path)]
		if call == nil {
			call = honest()[path.Base(r.URL.Path)]
		}
		if call == nil {
			call = fails("12") // unimplemented
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin")
		call(w, r)
	})}
	server.Protocols.SetUnencryptedHTTP2(true)
	return server.Serve(listener)
}

// honest returns the answers of a plugin that does nothing.
func honest() answers {
	return answers{
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
}

// replies answers with the given messages.
func replies(all ...proto.Message) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, m := range all {
			data, _ := proto.Marshal(m) // it cannot fail for these messages
			_, _ = w.Write(frame(data))
		}
		w.Header().Set("Grpc-Status", "0")
	}
}

// frame frames a message as gRPC does.
func frame(data []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data))), data...)
}

// fails ends a call with a status.
func fails(code string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Grpc-Status", code) }
}

// hangs until the caller gives up.
func hangs(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// forever sends a message again and again until the caller gives up.
func forever(m proto.Message) http.HandlerFunc {
	data, _ := proto.Marshal(m)
	return func(w http.ResponseWriter, r *http.Request) {
		go io.Copy(io.Discard, r.Body) // ends with the call
		for r.Context().Err() == nil {
			if _, err := w.Write(frame(data)); err != nil {
				return
			}
		}
	}
}

// huge announces a message of a gigabyte, and sends as much of it as the caller reads.
func huge(w http.ResponseWriter, r *http.Request) {
	_, err := w.Write(binary.BigEndian.AppendUint32([]byte{0}, 1<<30))
	for block := make([]byte, 1<<20); err == nil && r.Context().Err() == nil; {
		_, err = w.Write(block)
	}
}

// sendsOneByte sends one byte and then nothing.
func sendsOneByte(w http.ResponseWriter, r *http.Request) {
	_, _ = w.Write([]byte{0})
	_ = http.NewResponseController(w).Flush()
	hangs(w, r)
}

// sendsGarbage answers with random bytes.
func sendsGarbage(w http.ResponseWriter, _ *http.Request) {
	data := make([]byte, 4096)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	_, _ = w.Write(frame(data))
	w.Header().Set("Grpc-Status", "0")
}

// sendsEmptyFields answers with a message of many empty fields: two bytes each on the wire.
func sendsEmptyFields(field byte, bytes int) http.HandlerFunc {
	data := make([]byte, bytes&^1)
	for i := 0; i < len(data); i += 2 {
		data[i] = field<<3 | 2 // a message
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(frame(data))
		w.Header().Set("Grpc-Status", "0")
	}
}

// serveGarbage answers every connection with bytes that are not HTTP.
func serveGarbage(listener net.Listener) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		_, _ = conn.Write([]byte("220 mail.example.org ESMTP\r\n"))
		_ = conn.Close()
	}
}
