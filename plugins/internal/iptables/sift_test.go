// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
)

// TestSift finds the bad ones among many, with a hint or without, wherever they are;
// all others are in, and what the last refused try left is put back.
func TestSift(t *testing.T) {
	for name, hint := range map[string]func(bad []int) []int{
		"it is told which":  func(bad []int) []int { return bad[:1] },
		"it is told wrong":  func([]int) []int { return []int{3} },
		"it is told of all": func([]int) []int { return []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9} },
		"nobody knows":      func([]int) []int { return nil },
	} {
		for _, bad := range [][]int{{}, {0}, {9}, {4}, {2, 3}, {0, 5, 9}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}} {
			t.Run(fmt.Sprintf("%s %v", name, bad), func(t *testing.T) {
				in, dirty := make(map[int]bool), false
				failed, err := Sift([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, func(keys []int) ([]int, error) {
					found := slices.DeleteFunc(slices.Clone(keys), func(k int) bool { return !slices.Contains(bad, k) })
					if dirty = len(found) > 0; dirty {
						return hint(found), fmt.Errorf("write: %w", &LineError{Line: "-A X"})
					}
					for _, k := range keys {
						in[k] = true
					}
					return nil, nil
				})
				if err != nil || dirty || !slices.Equal(slices.Sorted(maps.Keys(failed)), bad) || len(in)+len(bad) != 10 {
					t.Errorf("failed %v, in %v, put back %t, %v", failed, in, !dirty, err)
				}
			})
		}
	}
}

// TestSiftEnds at an error of another kind, which is nobody's.
func TestSiftEnds(t *testing.T) {
	busy := errors.New("busy")
	failed, err := Sift([]int{1, 2}, func([]int) ([]int, error) { return nil, busy })
	if !errors.Is(err, busy) || len(failed) > 0 {
		t.Errorf("%v, %v", failed, err)
	}
}
