// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"embed"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// Major is the version of the wire that this sdk speaks: pointsman.dataplane.v1.
// A change that an older end would misunderstand makes a new one; everything else
// is a new field.
const Major uint32 = 1

// Majors returns those that a host of this version speaks: the newest, and the one
// before it once there is one. A plugin speaks Major only.
func Majors() []uint32 { return []uint32{Major} }

// Protos has the protocol's files, dataplane.proto and hello.proto, of which an author generates code
// for another language than Go.
//
//go:embed dataplane.proto hello.proto
var Protos embed.FS

// Hello is what a plugin says of itself. It is the first thing asked on a connection.
type Hello struct {
	Name    string   // the dataplane's, as in the binary's name
	Version string   // the plugin's own
	Majors  []uint32 // that it speaks
	PID     int      // as it sees itself
}

func (h Hello) String() string { return fmt.Sprintf("%s %s (pid %d)", h.Name, h.Version, h.PID) }

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
	return &pb.Description{
		Name: text(d.Name), Version: text(d.Version), Options: d.Options,
		Features: texts[string](d.Features), Limits: texts[string](d.Limits),
	}
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
