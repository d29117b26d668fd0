// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

var update = flag.Bool("update", false, "write what happens into testdata")

// TestScripts runs the scripts in testdata and compares what happens with their indented lines. Commands:
//
//	served MODE              a previous host wrote that this mode serves
//	kernel MODE ROLE         the kernel shows a role of a mode
//	observe                  the facts are lost, and restored from what the kernel shows
//	want MODE[/BUILD] [dry-run]
//	ask                      the same Want is requested again
//	run                      run without faults until there is nothing to do
//	facts                    print the facts and the roles in the kernel
//	until STEP MODE[/BUILD]  run until a step begins; drained and replaced: until Cut or Replace has ended
//	fail STEP MODE[/BUILD] N a step fails the next N times
//	busy MODE, idle MODE     another process takes the writer's lock, or releases it
//	kill MODE[/BUILD]        the process ends
//	kill host                another host begins; steps in progress were not done
//	sleep DURATION
//	new                      another node
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("go test ./host/plane -update writes what happens:\n%s", got)
			}
			if strings.Contains(got, "BROKEN") {
				t.Error("an invariant of the package does not hold")
			}
		})
	}
}

// play returns a script with the steps below each command.
func play(t *testing.T, script string) string {
	var out strings.Builder
	w := newScripted()
	for line := range strings.Lines(script) {
		if strings.HasPrefix(line, "  ") {
			continue // of the last time
		}
		out.WriteString(line)
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "----") {
			continue
		}
		if words[0] == "new" {
			w = newScripted()
			continue
		}
		w.trace = nil
		if !w.command(words[0], words[1:]) {
			t.Fatalf("no such command: %s", line)
		}
		for _, l := range w.trace {
			fmt.Fprintf(&out, "  %s\n", strings.TrimSpace(l))
		}
	}
	return out.String()
}

// A scripted world has the faults of a script.
type scripted struct {
	*world
	faults map[string]int // by step and instance: how many more times it fails
}

func newScripted() scripted {
	w := scripted{newWorld(), make(map[string]int)}
	w.fail = func(s Step, mode, build string) error {
		for _, name := range []string{mode, mode + "/" + build} {
			if what := s.Do.String() + " " + name; w.faults[what] > 0 {
				w.faults[what]--
				return errFault
			}
		}
		return nil
	}
	return w
}

func (w scripted) command(do string, args []string) bool {
	last := strings.Join(args, " ")
	switch do {
	case "served":
		w.state.Facts, w.kernel[last] = w.state.Facts.WithServed(last), sdk.Active
	case "kernel":
		w.kernel[args[0]] = map[string]sdk.Role{"active": sdk.Active, "draining": sdk.Draining, "standby": sdk.Standby}[args[1]]
	case "observe":
		w.state.Facts = Observed(w.want.Mode, w.kernel)
		w.note("%s", w.summary())
	case "want":
		w.want.Number++
		w.want.Mode, w.want.Build, _ = strings.Cut(args[0], "/")
		w.want.DryRun = slices.Contains(args, "dry-run")
	case "ask":
		w.want.Number++
	case "run":
		w.run(nil)
		w.note("%s", w.summary())
	case "facts":
		w.note("%s", w.summary())
	case "until":
		w.until(args[0], args[1])
	case "fail":
		n, err := strconv.Atoi(args[2])
		w.faults[args[0]+" "+args[1]] = n
		return err == nil
	case "busy", "idle":
		w.busy[last] = do == "busy"
	case "kill":
		w.kill(last)
	case "sleep":
		d, err := time.ParseDuration(last)
		w.now = w.now.Add(d)
		return err == nil
	default:
		return false
	}
	return true
}

// until runs until a step of an instance begins, or until the end of its Cut (drained) or Replace (replaced).
func (w scripted) until(verb, name string) {
	verb, ended := map[string]string{"drained": "prove", "replaced": "replace"}[verb], verb
	if verb == "" {
		verb = ended
	}
	w.run(func(s Step) bool {
		if ended == "drained" {
			return s.Do == Cleanup && w.name(s.On) == name
		}
		return s.Do.String() == verb && w.name(s.On) == name
	})
	if ended == "replaced" {
		for len(w.doing) > 0 {
			w.end(0)
		}
	}
	if ended == "drained" { // its connections are still there
		i := w.state.instance(w.doing[len(w.doing)-1].On)
		i.Doing, i.Clearing, i.Flows = 0, false, 1
		w.doing, w.trace = w.doing[:len(w.doing)-1], w.trace[:len(w.trace)-1]
	}
}

func (w scripted) kill(name string) {
	if name == "host" {
		w.restart(func() bool { return false })
		w.trace = nil
		return
	}
	for n := range w.state.Have {
		if i := &w.state.Have[n]; i.Up && (w.name(i.ID) == name || i.Mode == name) {
			w.lose(i)
		}
	}
	w.trace = nil
}

// summary returns the facts and the roles in the kernel.
func (w *world) summary() string {
	text := fmt.Sprintf("= %s serves", w.state.Facts.Served)
	if len(w.state.Facts.Left) > 0 {
		text += ", left: " + strings.Join(w.state.Facts.Left, " ")
	}
	if r := w.state.Facts.Refused; r.Refuses(w.want) {
		text += fmt.Sprintf(", refused: %s (%d tries)", r.Mode, r.Tries)
	}
	text += "; kernel:"
	for _, mode := range slices.Sorted(maps.Keys(w.kernel)) {
		text += " " + mode + " " + w.kernel[mode].String()
	}
	return text
}
