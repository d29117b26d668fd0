// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"slices"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// Hello is what a plugin says of itself. It is the first thing asked on a connection.
type Hello struct {
	Name    string   // the dataplane's, as in the binary's name
	Version string   // the plugin's own
	Majors  []uint32 // that it speaks
	PID     int      // as it sees itself
}

func (h Hello) String() string { return fmt.Sprintf("%s %s (pid %d)", h.Name, h.Version, h.PID) }

// newHello returns what this process says of itself.
func newHello(name, version string) Hello {
	return Hello{
		Name:    name,
		Version: version,
		Majors:  []uint32{Major},
		PID:     os.Getpid(),
	}
}

func encodeHello(h Hello) *pb.HelloReply {
	return &pb.HelloReply{
		Name:    text(h.Name),
		Version: text(h.Version),
		Majors:  h.Majors,
		Pid:     int64(h.PID),
	}
}

func decodeHello(h *pb.HelloReply) Hello {
	return Hello{
		Name:    oneLine(h.GetName()),
		Version: oneLine(h.GetVersion()),
		Majors:  first(h.GetMajors(), maxWords),
		PID:     int(h.GetPid()),
	}
}

// fits checks that the two ends have a major in common.
func (h Hello) fits() error {
	if slices.ContainsFunc(Majors(), func(m uint32) bool { return slices.Contains(h.Majors, m) }) {
		return nil
	}
	return fmt.Errorf("plugin %s %s speaks %v of the wire's majors, and this host %v; try: a plugin built with an sdk of the host's version", h.Name, h.Version, h.Majors, Majors())
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
