// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// numbered returns names of Services.
func numbered(n ...int) (names []sdk.Name) {
	for _, i := range n {
		names = append(names, sdk.Name{Service: fmt.Sprint(i)})
	}
	return names
}

// TestBisect: the bad Services are found wherever they are, and whatever the suspects are. All
// others are written.
func TestBisect(t *testing.T) {
	t.Parallel()
	all := numbered(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	for name, suspects := range map[string]func(bad []sdk.Name) []sdk.Name{
		"a bad one":   func(bad []sdk.Name) []sdk.Name { return bad[:1] },
		"a wrong one": func([]sdk.Name) []sdk.Name { return numbered(3) },
		"all":         func([]sdk.Name) []sdk.Name { return all },
		"none":        func([]sdk.Name) []sdk.Name { return nil },
	} {
		for _, bad := range [][]sdk.Name{{}, numbered(0), numbered(9), numbered(4), numbered(2, 3), numbered(0, 5, 9), all} {
			t.Run(fmt.Sprintf("%s %v", name, bad), func(t *testing.T) {
				written := make(map[sdk.Name]bool)
				var failed []sdk.Failure
				err := bisect(all, &failed, func(names []sdk.Name) ([]sdk.Name, []sdk.Failure, error) {
					found := slices.DeleteFunc(slices.Clone(names), func(n sdk.Name) bool { return !slices.Contains(bad, n) })
					if len(found) > 0 {
						return suspects(found), nil, fmt.Errorf("write: %w", &Refused{Err: errors.New("a line")})
					}
					for _, n := range names {
						written[n] = true
					}
					return nil, nil, nil
				})
				slices.SortFunc(failed, func(a, b sdk.Failure) int { return a.Name.Compare(b.Name) })
				found := slices.EqualFunc(failed, bad, func(f sdk.Failure, n sdk.Name) bool { return f.Name == n })
				if err != nil || !found || len(written)+len(bad) != len(all) {
					t.Errorf("failed %v, written %v, %v", failed, written, err)
				}
			})
		}
	}
}
