// SPDX-License-Identifier: Apache-2.0

package test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// operated are the Services of docs/operating.md.
const operated = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: NET.11, clusterIPs: [NET.11], ipFamilies: [IPv4], ipFamilyPolicy: SingleStack, ports: [{name: http, port: 18080, protocol: TCP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-7d4kx, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [NET.7]}, {addresses: [NET.8], conditions: {ready: false}}]
---
apiVersion: v1
kind: Service
metadata: {name: api, namespace: shop}
spec: {clusterIP: NET.12, clusterIPs: [NET.12], ipFamilies: [IPv4], ipFamilyPolicy: SingleStack, ports: [{name: grpc, port: 18090, protocol: TCP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: api-c2vqn, namespace: shop, labels: {kubernetes.io/service-name: api}}
addressType: IPv4
ports: [{name: grpc, port: 8090}]
endpoints: [{addresses: [NET.9], conditions: {ready: false}}]
`

// TestDocOfOperating runs every command of docs/operating.md beside a host that serves these Services. Each prints
// lines that begin as those of the page.
func TestDocOfOperating(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.manifest("shop.yaml", operated)
	s.start()
	s.serving()
	address, number := regexp.MustCompile(`127\.\d+\.\d+\.`), regexp.MustCompile(`\d+`)
	begins := func(line string) string {
		words := strings.Fields(address.ReplaceAllString(line, "NET."))
		if len(words) > 1 && slices.Contains([]string{"ok", "warn", "fail", "unknown"}, words[0]) {
			words = words[1:] // the check; its result depends on the node
		}
		if strings.HasPrefix(line, " ") || len(words) == 0 {
			return ""
		}
		return number.ReplaceAllString(words[0], "0")
	}
	var command string
	var printed []string
	many := 0
	for _, block := range regexp.MustCompile("(?ms)^```console\n(.*?)^```").FindAllStringSubmatch(read(t, "../docs/operating.md"), -1) {
		for line := range strings.SplitSeq(block[1], "\n") {
			if words, is := strings.CutPrefix(line, "$ pointsman "); is {
				many++
				command = words
				got := s.verb(strings.Fields(strings.ReplaceAll(words, "127.96.0.", s.net))...)
				if got.code > 2 || got.err != "" {
					t.Errorf("pointsman %s exits %d, and says\n%s%s", words, got.code, got.out, got.err)
				}
				printed = nil
				for line := range strings.SplitSeq(got.out, "\n") {
					printed = append(printed, begins(line))
				}
			} else if !slices.Contains(printed, begins(line)) && begins(line) != "" {
				t.Errorf("pointsman %s prints no line that begins as %q, but %q", command, line, printed)
			}
		}
	}
	if many < 8 {
		t.Errorf("docs/operating.md has %d commands, and had more", many)
	}
}
