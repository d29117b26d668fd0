// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// oldest names the first version of the sdk, and of the host, that speaks a major.
func oldest(major uint32) string {
	if major == 1 {
		return "0.1.0"
	}
	return fmt.Sprintf("%d.0.0", major)
}

// Hello is what a plugin says of itself. It is the first thing asked on a connection.
type Hello struct {
	Name    string    // the dataplane's, as in the binary's name
	Version string    // the plugin's own
	Majors  []uint32  // that it speaks
	Nonce   string    // drawn at its start: tells this process from any other
	Started time.Time // when it began to serve
	PID     int       // as it sees itself
	Needs   string    // for a host that speaks none of its majors: what would fit
}

func (h Hello) String() string { return fmt.Sprintf("%s %s (pid %d)", h.Name, h.Version, h.PID) }

// newHello returns what this process says of itself.
func newHello(name, version string) Hello {
	nonce := make([]byte, 16)
	rand.Read(nonce) // never fails: crypto/rand
	return Hello{
		Name:    name,
		Version: version,
		Majors:  []uint32{Major},
		Nonce:   hex.EncodeToString(nonce),
		Started: time.Now(),
		PID:     os.Getpid(),
		Needs:   needs(Major),
	}
}

func needs(major uint32) string {
	return fmt.Sprintf("it speaks major %d of the wire, which needs pointsman %s or later", major, oldest(major))
}

func encodeHello(h Hello) *pb.HelloReply {
	return &pb.HelloReply{
		Name:            text(h.Name),
		Version:         text(h.Version),
		Majors:          h.Majors,
		Nonce:           h.Nonce,
		StartedUnixNano: h.Started.UnixNano(),
		Pid:             int64(h.PID),
		Needs:           h.Needs,
	}
}

func decodeHello(h *pb.HelloReply) Hello {
	return Hello{
		Name:    oneLine(h.GetName()),
		Version: oneLine(h.GetVersion()),
		Majors:  first(h.GetMajors(), maxWords),
		Nonce:   h.GetNonce(),
		Started: time.Unix(0, h.GetStartedUnixNano()),
		PID:     int(h.GetPid()),
		Needs:   oneLine(h.GetNeeds()),
	}
}

// common returns the newest major that both ends speak; zero: there is none.
func (h Hello) common() uint32 {
	for _, major := range Majors() {
		if slices.Contains(h.Majors, major) {
			return major
		}
	}
	return 0
}

// fits checks that the two ends have a major in common, and else says what would.
func (h Hello) fits() error {
	if h.common() != 0 {
		return nil
	}
	return &SkewError{fmt.Sprintf("plugin %s %s", h.Name, h.Version), h.Majors, h.Needs}
}

// A SkewError is that host and plugin have no major in common. It says what would fit.
type SkewError struct {
	Plugin string   // which one, in words
	Majors []uint32 // that it speaks
	Needs  string   // Hello.Needs; empty: it did not come so far
}

func (e *SkewError) Error() string {
	ours, theirs := Majors(), e.Majors
	s := fmt.Sprintf("%s speaks major %s of the wire, this host speaks %s: ", e.Plugin, counted(theirs), counted(ours))
	if len(theirs) > 0 && slices.Max(theirs) < slices.Min(ours) {
		s += fmt.Sprintf("use a plugin built with sdk %s or later", oldest(slices.Min(ours)))
	} else {
		s += fmt.Sprintf("use a plugin built with an sdk of major %d (the oldest that fits is %s)", slices.Max(ours), oldest(slices.Min(ours)))
		if len(theirs) > 0 {
			s += fmt.Sprintf(", or pointsman %s or later as the host", oldest(slices.Min(theirs)))
		}
	}
	if e.Needs != "" {
		s += "; the plugin says: " + text(e.Needs)
	}
	return s
}

func counted(majors []uint32) string {
	if len(majors) == 0 {
		return "none"
	}
	words := make([]string, len(majors))
	for i, m := range majors {
		words[i] = fmt.Sprint(m)
	}
	return strings.Join(words, " and ")
}

func encodeDescription(d sdk.Description) *pb.Description {
	out := &pb.Description{Name: text(d.Name), Version: text(d.Version), Options: d.Options}
	for _, f := range d.Features {
		out.Features = append(out.Features, text(string(f)))
	}
	for _, l := range d.Limits {
		out.Limits = append(out.Limits, text(string(l)))
	}
	return out
}

// decodeDescription leaves out options that are no JSON: the host shows them as a
// part of its own.
func decodeDescription(d *pb.Description) sdk.Description {
	out := sdk.Description{
		Name:     oneLine(d.GetName()),
		Version:  oneLine(d.GetVersion()),
		Features: texts[sdk.Feature](d.GetFeatures()),
		Limits:   texts[sdk.Limit](d.GetLimits()),
	}
	if json.Valid(d.GetOptions()) {
		out.Options = d.GetOptions()
	}
	return out
}

// checkDescription returns what is wrong with a Description that no host could show.
func checkDescription(d sdk.Description) error {
	var schema json.RawMessage
	if err := json.Unmarshal(d.Options, &schema); len(d.Options) > 0 && err != nil {
		return &sdk.Refusal{
			Field: "Description.Options",
			Why:   fmt.Sprintf("it is no JSON: %v", err),
			Try:   "a plugin whose author has written a JSON schema there, or nothing",
		}
	}
	return nil
}

// encodeSysctls moves by one, because the zero of the vocabulary is a meaning and
// the zero of the wire is none.
func encodeSysctls(s sdk.Sysctls) pb.Sysctls { return pb.Sysctls(s) + 1 }

func decodeSysctls(s pb.Sysctls) (sdk.Sysctls, error) {
	switch s {
	case pb.Sysctls_SYSCTLS_WRITE:
		return sdk.WriteSysctls, nil
	case pb.Sysctls_SYSCTLS_EXPECT:
		return sdk.ExpectSysctls, nil
	}
	return 0, &sdk.Refusal{
		Field: "sysctls",
		Why:   fmt.Sprintf("the host asks for %s, which this plugin does not know", s),
		Try:   "a newer version of the plugin",
	}
}

// Build returns what the Go toolchain wrote into this program of where it comes from: a
// tag, or a commit with its time, and "+dirty" if the files were not those of the
// commit. It is "(devel)" where the toolchain did not look.
func Build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
