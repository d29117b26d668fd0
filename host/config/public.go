// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"fmt"
)

// Hidden is printed in place of a secret.
const Hidden = "(secret)"

// Public returns settings, as JSON has them, without what may be secret: the values of a plugin's
// options. Only the plugin knows which of them are secret, so none is shown, only their names. No
// other field of a Host holds a secret. It also returns the strings that it removed, because
// messages may quote them.
func Public(settings []byte) (public []byte, removed []string, err error) {
	var tree map[string]any
	if err := json.Unmarshal(settings, &tree); err != nil {
		return nil, nil, fmt.Errorf("remove secrets from the settings: %w", err)
	}
	plugins, _ := tree["plugins"].(map[string]any)
	for _, p := range plugins {
		fields, _ := p.(map[string]any)
		options, isMap := fields["options"].(map[string]any)
		for name, value := range options {
			removed = append(removed, stringsIn(value)...)
			options[name] = Hidden
		}
		if value, is := fields["options"]; is && !isMap {
			removed = append(removed, stringsIn(value)...)
			fields["options"] = Hidden
		}
	}
	public, err = json.MarshalIndent(tree, "", "  ")
	return public, removed, err
}

// stringsIn returns every string in a JSON value.
func stringsIn(value any) (all []string) {
	switch v := value.(type) {
	case string:
		return []string{v}
	case []any:
		for _, item := range v {
			all = append(all, stringsIn(item)...)
		}
	case map[string]any:
		for name, item := range v {
			all = append(append(all, name), stringsIn(item)...)
		}
	}
	return all
}
