// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

var dataplaneName = regexp.MustCompile(`^[a-z0-9-]+$`)

// describesItself: what a dataplane says of itself is what hosts choose it by, and users read. A
// word that is unknown, such as a misspelt limit, would excuse nothing and mean nothing.
func describesItself(t *trial) {
	if err := wrongIn(t.description, t.subject.Name); err != nil {
		t.fail(err)
	}
}

// wrongIn returns what is wrong in a description; nil: nothing is. name is that of the binary;
// empty: it is not known.
func wrongIn(d sdk.Description, name string) error {
	differs := func(want, seen string) error { return mismatch{want, seen} }
	switch {
	case !dataplaneName.MatchString(d.Name):
		return differs("Description.Name of lower-case letters, digits and -", fmt.Sprintf("%q", d.Name))
	case name != "" && d.Name != name:
		return differs(fmt.Sprintf("Description.Name %q, as the binary's name says (pointsman-dataplane-NAME)", name), fmt.Sprintf("%q", d.Name))
	case d.Version == "":
		return differs("Description.Version to say which version of the plugin this is", "it is empty")
	case len(d.Options) > 0 && !json.Valid(d.Options):
		return differs("Description.Options to be a JSON schema", fmt.Sprintf("%.80q", d.Options))
	}
	for _, l := range d.Limits {
		if !slices.Contains(sdk.Limits, l) {
			return differs("only limits that the contract knows: "+join(sdk.Limits), fmt.Sprintf("%q", l))
		}
	}
	for _, f := range d.Features {
		if !slices.Contains(sdk.Features, f) {
			return differs("only features that the vocabulary knows: "+join(sdk.Features), fmt.Sprintf("%q", f))
		}
	}
	return nil
}
