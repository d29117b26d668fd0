// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"sync"
	"time"

	"github.com/pointsman/pointsman/sdk/helper"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// A Helper is a long-lived process that a dataplane has declared, by package helper.
type Helper struct {
	Name   string
	PID    int    // zero: it has ended
	Path   string // its executable
	Memory uint64 // bytes resident, with what it has started; not in Vitals.Memory
}

// TotalMemory returns how many bytes are resident of the plugin and of its helpers.
func (v Vitals) TotalMemory() uint64 {
	total := v.Memory
	for _, h := range v.Helpers {
		total += h.Memory
	}
	return total
}

// weighEvery is how often the memory of helpers is looked at: it costs a look at every process.
const weighEvery = 10 * time.Second

// A helperList reads what a dataplane has declared, where its sessions say that it does.
type helperList struct {
	mu       sync.Mutex // guards what follows
	stateDir string     // of the last Configure; empty: there was none
	memory   map[int]uint64
	weighed  time.Time
}

func (l *helperList) begin(stateDir string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stateDir = stateDir
}

// dir returns the state directory to clean up in, where a call names none.
func (l *helperList) dir(asked string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if asked != "" {
		return asked
	}
	return l.stateDir
}

// now returns the helpers, and a sentence for each thing about them that an operator should know.
func (l *helperList) now() (list []Helper, notes []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stateDir == "" {
		return nil, nil
	}
	records, err := helper.All(helper.Dir(l.stateDir))
	if err != nil {
		notes = append(notes, fmt.Sprintf("its helpers cannot be seen: %v", err))
	}
	weigh := time.Since(l.weighed) >= weighEvery
	if weigh {
		l.memory, l.weighed = make(map[int]uint64), time.Now()
	}
	for _, r := range first(records, maxHelpers) {
		h := Helper{Name: r.Name, Path: r.Path}
		switch {
		case r.PID == 0:
			continue // it is being started
		case !r.Runs():
			notes = append(notes, fmt.Sprintf("its helper %s has ended, and no other was started", r))
		default:
			if _, known := l.memory[r.PID]; weigh || !known {
				l.memory[r.PID] = r.Memory()
			}
			h.PID, h.Memory = r.PID, l.memory[r.PID]
		}
		list = append(list, h)
	}
	return list, notes
}

func encodeHelpers(list []Helper) (out []*pb.Helper) {
	for _, h := range first(list, maxHelpers) {
		out = append(out, &pb.Helper{Name: text(h.Name), Pid: int64(h.PID), Path: text(h.Path), Memory: h.Memory})
	}
	return out
}

func decodeHelpers(list []*pb.Helper) (out []Helper) {
	for _, h := range first(list, maxHelpers) {
		out = append(out, Helper{Name: oneLine(h.GetName()), PID: int(max(0, h.GetPid())), Path: oneLine(h.GetPath()), Memory: h.GetMemory()})
	}
	return out
}
