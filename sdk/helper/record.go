// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/pointsman/pointsman/sdk/statefile"
)

// Dir returns the folder that a host reads: the one in which a dataplane with this
// Setup.StateDir declares its helpers.
func Dir(stateDir string) string { return filepath.Join(stateDir, "helpers") }

// ErrNone says that no helper of that name runs. Wrapped with os.ErrProcessDone, there was one.
var ErrNone = errors.New("no such helper runs")

// A Record declares a helper. Its JSON is NAME.json in the folder, 0600.
type Record struct {
	Name  string   `json:"name"`
	PID   int      `json:"pid,omitempty"`   // zero: it is about to be started
	Start uint64   `json:"start,omitempty"` // when the process started, in the kernel's ticks since boot
	Boot  string   `json:"boot,omitempty"`  // the kernel's boot_id: after another boot a record says nothing
	Path  string   `json:"path"`            // its executable
	Args  []string `json:"args,omitempty"`  // after the name
	Token string   `json:"token,omitempty"` // in its environment as POINTSMAN_HELPER
}

// String names the helper as an operator finds it: "haproxy (pid 312, /usr/sbin/haproxy)".
func (r Record) String() string {
	return fmt.Sprintf("%s (pid %d, %s)", r.Name, r.PID, r.Path)
}

// Runs reports whether the very process that was recorded runs.
func (r Record) Runs() bool {
	if r.PID <= 1 || r.Start == 0 || r.Boot != bootID() {
		return false
	}
	now, err := readStat(r.PID)
	return err == nil && now.start == r.Start
}

// Memory returns how many bytes of it are resident, with those of the processes in its
// session; zero: not known.
func (r Record) Memory() uint64 {
	if !r.Runs() {
		return 0
	}
	total := resident(r.PID)
	for _, m := range family(r, false) {
		total += resident(m.pid)
	}
	return total
}

// Has reports whether a process belongs to the helper while that runs: it is that one, or in
// its session, or has its token in its environment.
func (r Record) Has(pid int) bool {
	now, err := readStat(pid)
	if err != nil || !r.Runs() {
		return false
	}
	return pid == r.PID || now.session == r.PID || tokenOf(pid, r.Token)
}

// All returns the records in dir, in the order of their names, also those of helpers that
// have ended: Runs tells which. Without the folder there are none.
func All(dir string) ([]Record, error) {
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for helpers: %w", err)
	}
	var all []Record
	var unread []error
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), ".json")
		if !ok || !validName.MatchString(name) {
			continue
		}
		switch r, err := read(dir, name); {
		case err == nil:
			all = append(all, r)
		case !errors.Is(err, ErrNone):
			unread = append(unread, err)
		}
	}
	return all, errors.Join(unread...)
}

// maxName is the length of a name in bytes.
const maxName = 63

var validName = regexp.MustCompile(fmt.Sprintf(`^[a-z0-9][a-z0-9-]{0,%d}$`, maxName-1))

func recordFile(dir, name string) string { return filepath.Join(dir, name+".json") }

// read returns the record of that name, with the pid of a process that was started when its
// plugin was killed before it wrote that down. The error is ErrNone where there is no record
// of this boot.
func read(dir, name string) (Record, error) {
	none := fmt.Errorf("helper %q: %w", name, ErrNone)
	data, err := statefile.Read(recordFile(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, none
	}
	if err != nil {
		return Record{}, fmt.Errorf("read the record of helper %q: %w", name, err)
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return Record{}, fmt.Errorf("%s is no record of a helper: %w; remove it", recordFile(dir, name), err)
	}
	if r.Name != name || r.Boot != bootID() {
		return Record{}, none
	}
	if r.PID == 0 {
		r.PID, r.Start = withToken(r.Token)
	}
	return r, nil
}

func write(dir string, r Record) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = statefile.Write(recordFile(dir, r.Name), append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("declare helper %q: %w", r.Name, err)
	}
	return nil
}
