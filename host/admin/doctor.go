// SPDX-License-Identifier: Apache-2.0

package admin

// A Diagnosis is what `doctor` finds on a node.
type Diagnosis struct {
	Meta
	Result Result    `json:"result"` // the worst of Checks
	Checks []Finding `json:"checks"`
}

// A Finding is how one thing stands.
type Finding struct {
	Check  string `json:"check"` // what was looked at
	Result Result `json:"result"`
	Why    string `json:"why"`
	Try    string `json:"try,omitempty"` // what to do, where something is to be done
}

// A Result is what a check came to, in one word.
type Result string

// The results, from good to bad.
const (
	OK      Result = "ok"
	Unknown Result = "unknown" // it could not be looked at; the reason says why
	Warn    Result = "warn"    // Services may be served, and not all of it, or not always
	Fail    Result = "fail"    // it keeps Services from being served
)

// Worst returns the worst result of some findings; what is not known is no worse than good.
func Worst(all []Finding) Result {
	worst := OK
	for _, f := range all {
		if f.Result == Fail || f.Result == Warn && worst == OK {
			worst = f.Result
		}
	}
	return worst
}
