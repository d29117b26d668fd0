// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// numbered are Services of which only the names matter.
func numbered(n ...int) (names []sdk.Name) {
	for _, i := range n {
		names = append(names, sdk.Name{Service: fmt.Sprint(i)})
	}
	return names
}

// TestSift finds the bad Services among many, with a hint or without, wherever they are; all
// others are written.
func TestSift(t *testing.T) {
	t.Parallel()
	all := numbered(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	for name, hint := range map[string]func(bad []sdk.Name) []sdk.Name{
		"it is told which":   func(bad []sdk.Name) []sdk.Name { return bad[:1] },
		"it is told wrong":   func([]sdk.Name) []sdk.Name { return numbered(3) },
		"it is told of all":  func([]sdk.Name) []sdk.Name { return all },
		"it cannot be known": func([]sdk.Name) []sdk.Name { return nil },
	} {
		for _, bad := range [][]sdk.Name{{}, numbered(0), numbered(9), numbered(4), numbered(2, 3), numbered(0, 5, 9), all} {
			t.Run(fmt.Sprintf("%s %v", name, bad), func(t *testing.T) {
				written := make(map[sdk.Name]bool)
				var failed []sdk.Failure
				err := sift(all, &failed, func(names []sdk.Name) ([]sdk.Name, []sdk.Failure, error) {
					found := slices.DeleteFunc(slices.Clone(names), func(n sdk.Name) bool { return !slices.Contains(bad, n) })
					if len(found) > 0 {
						return hint(found), nil, fmt.Errorf("write: %w", &Refused{Err: errors.New("a line")})
					}
					for _, n := range names {
						written[n] = true
					}
					return nil, nil, nil
				})
				slices.SortFunc(failed, func(a, b sdk.Failure) int { return a.Name.Compare(b.Name) })
				named := slices.EqualFunc(failed, bad, func(f sdk.Failure, n sdk.Name) bool { return f.Name == n })
				if err != nil || !named || len(written)+len(bad) != len(all) {
					t.Errorf("failed %v, written %v, %v", failed, written, err)
				}
			})
		}
	}
}

// TestSiftEnds at an error of another kind, which is no Service's.
func TestSiftEnds(t *testing.T) {
	t.Parallel()
	busy := errors.New("busy")
	var failed []sdk.Failure
	err := sift(numbered(1, 2), &failed, func([]sdk.Name) ([]sdk.Name, []sdk.Failure, error) { return nil, nil, busy })
	if !errors.Is(err, busy) || len(failed) > 0 {
		t.Errorf("%v, %v", failed, err)
	}
}
