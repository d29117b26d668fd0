// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"encoding/json"
	"fmt"
	"slices"
)

// harmless are the settings that an archive has, as the config file names them. What is not in this list,
// such as a field that is new, is left out until it is added here. true: with all below it.
var harmless = map[string]bool{
	"apiVersion": true, "kind": true, "mode": true, "hostnameOverride": true, "bindAddress": true,
	"source": true, "clientConnection": true,
	"syncPeriod": true, "minSyncPeriod": true, "configSyncPeriod": true,
	"detectLocalMode": true, "detectLocal": true, "nodePortAddresses": true, "externalIPs": true,
	"healthzBindAddress": true, "metricsBindAddress": true, "bindAddressHardFail": true, "enableProfiling": true, "webBindAddress": true,
	"adminSocket": true, "adminGroup": true, "stateDir": true, "dataDir": true, "oomScoreAdj": true,
	"linux": true, "logging": true, "pluginDirs": true, "swap": true,
}

// Settings are those of a host's settings that may be told, and the secrets among the others: values of
// options that their plugin does not describe. schemas are what plugins say of their options, by name.
func Settings(settings []byte, schemas map[string][]byte) (allowed map[string]any, secrets []string, err error) {
	var all map[string]any
	if err := json.Unmarshal(settings, &all); err != nil {
		return nil, nil, fmt.Errorf("read the settings: %w", err)
	}
	allowed = make(map[string]any)
	for field, value := range all {
		if harmless[field] {
			allowed[field] = value
		}
	}
	plugins, _ := all["plugins"].(map[string]any)
	for name, p := range plugins {
		fields, _ := p.(map[string]any)
		kept := make(map[string]any)
		for _, field := range []string{"path", "address", "sha256"} {
			if v, there := fields[field]; there {
				kept[field] = v
			}
		}
		options, _ := fields["options"].(map[string]any)
		known, unknown := describedOptions(options, schemas[name])
		kept["options"] = known
		secrets = append(secrets, unknown...)
		if allowed["plugins"] == nil {
			allowed["plugins"] = make(map[string]any)
		}
		allowed["plugins"].(map[string]any)[name] = kept
	}
	return allowed, secrets, nil
}

// A property is how a schema describes one option.
type property struct {
	Type string `json:"type"`
	Enum []any  `json:"enum"`
}

// describedOptions are the options that cannot be secret: one of the words that the schema lists, a number, or yes
// or no, of an option that it names. Of the others there is only the name, where the schema has it.
func describedOptions(options map[string]any, schema []byte) (known map[string]any, secrets []string) {
	var s struct {
		Properties map[string]property `json:"properties"`
	}
	_ = json.Unmarshal(schema, &s) // one that cannot be read describes nothing
	known = make(map[string]any)
	for name, value := range options {
		p, described := s.Properties[name]
		switch value.(type) {
		case bool, float64:
			if described {
				known[name] = value
				continue
			}
		case string:
			if slices.Contains(p.Enum, value) {
				known[name] = value
				continue
			}
		}
		if described {
			known[name] = "(left out)"
		}
		secrets = append(secrets, texts(value)...)
	}
	return known, secrets
}

// texts are all strings and numbers in a value.
func texts(value any) (all []string) {
	switch v := value.(type) {
	case string:
		return []string{v}
	case float64:
		return []string{fmt.Sprint(v)}
	case []any:
		for _, item := range v {
			all = append(all, texts(item)...)
		}
	case map[string]any:
		for _, item := range v {
			all = append(all, texts(item)...)
		}
	}
	return all
}

// notSecret are fields of a user in a kubeconfig that say how it is read, and not what.
var notSecret = []string{"apiVersion", "command", "interactiveMode", "client-certificate", "client-key", "tokenFile", "installHint", "provideClusterInfo"}

// Credentials are the values that are secret in the parts "users" of a kubeconfig, and the files
// that it says have others.
func Credentials(users any) (secrets, files []string) {
	list, _ := users.([]any)
	for _, item := range list {
		named, _ := item.(map[string]any)
		user, _ := named["user"].(map[string]any)
		for field, value := range user {
			if text, is := value.(string); is && (field == "client-key" || field == "tokenFile") {
				files = append(files, text)
			} else if !slices.Contains(notSecret, field) {
				secrets = append(secrets, secretsIn(value)...)
			}
		}
	}
	return secrets, files
}

// secretsIn are the texts in a value, but for those of fields that are not secret.
func secretsIn(value any) (all []string) {
	switch v := value.(type) {
	case map[string]any:
		for field, item := range v {
			if !slices.Contains(notSecret, field) && field != "name" {
				all = append(all, secretsIn(item)...)
			}
		}
	case []any:
		for _, item := range v {
			all = append(all, secretsIn(item)...)
		}
	default:
		all = texts(value)
	}
	return all
}
