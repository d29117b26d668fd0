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

// Major is the version of the protocol that this sdk speaks: pointsman.dataplane.v1. A change
// that an older peer would misunderstand needs a new major; every other change is a new field.
const Major uint32 = 1

// Majors returns the versions that a host of this version speaks: the newest, and the previous
// one if there is one. A plugin speaks Major only.
func Majors() []uint32 { return []uint32{Major} }

// Protos contains dataplane.proto and hello.proto, from which authors of plugins in other languages
// generate code.
//
//go:embed dataplane.proto hello.proto
var Protos embed.FS

// Hello is a plugin's description of itself. It is the first call on a connection.
type Hello struct {
	Name    string   // of the dataplane, as in the name of the binary
	Version string   // version of the plugin
	Majors  []uint32 // protocol versions that it speaks
	PID     int      // in its own PID namespace
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

// checkMajors returns an error if the two sides have no common major.
func (h Hello) checkMajors() error {
	if slices.ContainsFunc(Majors(), func(m uint32) bool { return slices.Contains(h.Majors, m) }) {
		return nil
	}
	return fmt.Errorf("plugin %s %s speaks %v of the wire's majors, and this host %v; try: a plugin built with an sdk of the host's version", h.Name, h.Version, h.Majors, Majors())
}

func encodeDescription(d sdk.Description) *pb.Description {
	return &pb.Description{
		Name: Printable(d.Name), Version: Printable(d.Version), Options: d.Options,
		Features: texts[string](d.Features), Limits: texts[string](d.Limits),
	}
}

// decodeDescription drops options that are not valid JSON, because the host embeds them in its
// own JSON.
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

// Build returns the version that the Go toolchain recorded in this program: a tag, or a commit
// with its time, and "+dirty" if the files differed from the commit. It returns "(devel)" if
// the toolchain recorded nothing.
func Build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
