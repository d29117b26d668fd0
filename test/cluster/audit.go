// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"io"
	"os"
)

// auditFlags writes an audit policy, and returns the flags of a server that logs each request after its response.
func (c *Cluster) auditFlags() []string {
	c.t.Helper()
	c.write("audit.yaml", []byte(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata}
`))
	return []string{"--audit-policy-file=" + c.file("audit.yaml"), "--audit-log-path=" + c.file("audit.log"), "--audit-log-mode=blocking"}
}

// Asked returns the set of a user's requests so far, such as "list services" and "create events.k8s.io/events". It
// requires Options.Audit.
func (c *Cluster) Asked(user string) map[string]bool {
	c.t.Helper()
	file, err := os.Open(c.file("audit.log"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer file.Close()
	asked := make(map[string]bool)
	for lines := json.NewDecoder(file); ; {
		var event struct {
			Verb      string
			User      struct{ Username string }
			ObjectRef struct{ APIGroup, Resource string }
		}
		err := lines.Decode(&event)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // the last line is being written
			return asked
		}
		if err != nil {
			c.t.Fatalf("reading the audit log: %v", err)
		}
		resource := event.ObjectRef.Resource
		if event.ObjectRef.APIGroup != "" {
			resource = event.ObjectRef.APIGroup + "/" + resource
		}
		if event.User.Username == user && resource != "" {
			asked[event.Verb+" "+resource] = true
		}
	}
}
