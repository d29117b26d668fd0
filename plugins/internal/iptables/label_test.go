// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"strings"
	"testing"
	"unicode"

	"github.com/pointsman/pointsman/sdk"
)

// LabelledFrontend is the inverse of LabelFrontend, and accepts any text.
func FuzzLabel(f *testing.F) {
	f.Add("ns1", "web", "http", true)
	f.Fuzz(func(t *testing.T, namespace, service, port string, local bool) {
		policy := sdk.Cluster
		if local {
			policy = sdk.Local
		}
		n := sdk.Name{Namespace: namespace, Service: service, Port: port}
		name, frontend, ok := LabelledFrontend(LabelFrontend(n, sdk.NodePort, policy))
		for _, text := range []string{namespace, service, port} {
			if strings.ContainsAny(text, "/:") || strings.ContainsFunc(text, unicode.IsSpace) || service == "" {
				return // no name in Kubernetes
			}
		}
		if !ok || name != n || frontend.Kind != sdk.NodePort || frontend.Policy != policy {
			t.Errorf("%+v is read as %+v, %+v", n, name, frontend)
		}
	})
}
