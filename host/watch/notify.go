// SPDX-License-Identifier: Apache-2.0

package watch

// news is what the kernel says has changed in the folder that is watched.
type news struct {
	names   map[string]event // the last of each name
	swapped bool             // a hidden name that links may lead through was replaced
	all     bool             // look at everything: events may have been lost
}
