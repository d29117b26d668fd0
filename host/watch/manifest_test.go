// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

const webService = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: ns1}
spec:
  clusterIP: 172.30.0.1
  ports:
  - {name: http, port: 80, targetPort: 8080}
`

const webSlice = `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-1
  namespace: ns1
  labels: {kubernetes.io/service-name: web}
addressType: IPv4
ports:
- {name: http, port: 8080}
endpoints:
- addresses: [10.180.0.1]
  nodeName: n1
- addresses: [10.180.1.1]
`

func ids(m *manifest) string {
	var lines []string
	for _, o := range m.objects {
		lines = append(lines, fmt.Sprintf("%d %s", o.line, o.id))
	}
	return strings.Join(lines, "\n")
}

func faults(m *manifest) string {
	var lines []string
	for _, f := range m.faults {
		lines = append(lines, f.Error())
	}
	return strings.Join(lines, "\n")
}

// TestFaults checks that a fault names the file, the line of the document, the object, the field and the value, and that it
// hides no other object.
func TestFaults(t *testing.T) {
	service := func(spec string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {" + spec + "}\n"
	}
	slice := func(rest string) string {
		return "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1}\n" + rest
	}
	const ip, port = "clusterIP: 172.30.0.1", "ports: [{port: 80}]"
	for _, tt := range []struct{ manifest, want string }{
		{"a:\n\tb: c\n", "yaml: line 10: found character that cannot start any token"},
		{"- a\n- b\n", "want an object with apiVersion, kind and metadata: object: array is no object"},
		{"metadata: {name: web}\n", "apiVersion or kind is missing"},
		{"apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\n", "EndpointSlice default/: discovery.k8s.io/v1beta1 is not read; try: Service and Node of v1, EndpointSlice of discovery.k8s.io/v1"},
		{"apiVersion: v1\nkind: Endpoints\n", "Endpoints default/: v1 is not read; try: "},
		{"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e]\n", "yaml: document contains excessive aliasing"},
		{"a: [" + strings.Repeat("1,", maxValues) + "]\n", "the document has more than 1048576 commas, colons and lines"},
		{"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: None}}\n- {apiVersion: v1, kind: Service, metadata: {name: b}, spec: {clusterIP: x, ports: [{port: 80}]}}\n", `Service default/b: spec.clusterIP: Invalid value: "x": must be a valid IP address`},

		{service("clusterIp: 172.30.0.1, " + port), `Service default/web: unknown field "spec.clusterIp"`},
		{service(ip + ", ports: [{port: 80, nodeport: 3}]"), `Service default/web: unknown field "spec.ports[0].nodeport"`},
		{service(ip + ", " + port + ", " + ip), `yaml: unmarshal errors: line 12: key "clusterIP" already set in map`},
		{service(ip + ", ports: [{port: http}]"), `Service default/web: spec.ports.port: "http" is no int32`},
		{service(ip + ", ports: [{port: 80, name: 80}]"), "Service default/web: spec.ports.name: 80 is no string"},
		{service(ip + ", ports: http"), `Service default/web: spec.ports: "http" is no list`},
		{service(ip + ", ports: [{port: 99999999999}]"), "Service default/web: spec.ports.port: 99999999999 is no int32"},

		{service(port), "Service default/web: spec.clusterIP: Required value: must be set in a file: only an API server chooses an address"},
		{service("clusterIP: web, " + port), `Service default/web: spec.clusterIP: Invalid value: "web": must be a valid IP address`},
		{service("clusterIPs: [172.30.0.1, 172.30.0.2], " + port), `spec.clusterIPs[1]: Invalid value: "172.30.0.2": must be of another IP family than the first one`},
		{service("clusterIP: 172.30.0.3, clusterIPs: [172.30.0.1], " + port), `spec.clusterIPs[0]: Invalid value: "172.30.0.1": must be spec.clusterIP, 172.30.0.3`},
		{service(ip), "spec.ports: Required value"},
		{service(ip + ", ports: [{port: 0}]"), "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"},
		{service(ip + ", ports: [{port: 65536}]"), "spec.ports[0].port: Invalid value: 65536: must be between 1 and 65535, inclusive"},
		{service(ip + ", ports: [{port: 80, protocol: QUIC}]"), `spec.ports[0].protocol: Unsupported value: "QUIC": supported values: "TCP", "UDP", "SCTP"`},
		{service(ip + ", ports: [{port: 80, name: a}, {port: 81}]"), "spec.ports[1].name: Required value: each of several ports needs one"},
		{service(ip + ", ports: [{port: 80, name: a}, {port: 81, name: a}]"), `spec.ports[1].name: Duplicate value: "a"`},
		{service(ip + ", ports: [{port: 80, name: a}, {port: 80, name: b}]"), `spec.ports[1].port: Duplicate value: "80/TCP"`},
		{service(ip + ", ports: [{port: 80, name: HTTP}]"), `spec.ports[0].name: Invalid value: "HTTP": a lowercase RFC 1123 label must`},
		{service("type: NodePort, " + ip + ", " + port), "spec.ports[0].nodePort: Required value: must be set in a file: only an API server chooses a port"},
		{service(ip + ", ports: [{port: 80, nodePort: 30080}]"), "spec.ports[0].nodePort: Forbidden: only for the types NodePort and LoadBalancer"},
		{service("type: Clusterip, " + ip + ", " + port), `spec.type: Unsupported value: "Clusterip": supported values: "ClusterIP", "NodePort"`},
		{service("externalTrafficPolicy: local, " + ip + ", " + port), `spec.externalTrafficPolicy: Unsupported value: "local": supported values: "Cluster", "Local"`},
		{service("internalTrafficPolicy: local, " + ip + ", " + port), `spec.internalTrafficPolicy: Unsupported value: "local"`},
		{service("sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 86401}}, " + ip + ", " + port), "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: must be between 1 and 86400, inclusive"},
		{"apiVersion: v1\nkind: Service\nspec: {clusterIP: 172.30.0.1, ports: [{port: 80}]}\n", "Service default/: metadata.name: Required value: name or generateName is required"},
		{strings.Replace(service(ip+", "+port), "web", strings.Repeat("a", 64), 1), "must be no more than 63 characters"},
		{strings.Replace(service(ip+", "+port), "name: web", "name: web, labels: {a b: c}", 1), `Service default/web: metadata.labels: Invalid value: "a b"`},

		{slice("addressType: ipv4\n"), `EndpointSlice default/web-1: addressType: Unsupported value: "ipv4": supported values: "IPv4", "IPv6", "FQDN"`},
		{slice(""), "EndpointSlice default/web-1: addressType: Required value"},
	} {
		m := parse("m.yaml", []byte(webService+"---\n"+tt.manifest+"---\n"+webSlice))
		if got := faults(m); len(m.faults) != 1 || !strings.HasPrefix(got, "m.yaml:8: ") || !strings.Contains(got, tt.want) {
			t.Errorf("\n%.400s\nfaults\n%s\nwant one\n%s", tt.manifest, got, tt.want)
		}
		if got := ids(m); !strings.HasPrefix(got, "1 Service ns1/web\n") || !strings.HasSuffix(got, " EndpointSlice ns1/web-1") || strings.Contains(got, "default/web") {
			t.Errorf("\n%.400s\nobjects\n%s", tt.manifest, got)
		}
	}
}

func TestDocuments(t *testing.T) {
	const two = "1 Service ns1/web\n8 EndpointSlice ns1/web-1"
	for _, tt := range []struct{ name, manifest, want string }{
		{"none", "", ""},
		{"comments", "# nothing\n---\n# here\n", ""},
		{"two", webService + "---\n" + webSlice, two},
		{"separators all over", "---\n---\n" + webService + "--- # next\n" + webSlice + "---", "2 Service ns1/web\n10 EndpointSlice ns1/web-1"},
		{"a line that only looks like one", webService + "#\n---x: y\n", ""},
		{"line ends of Windows", strings.ReplaceAll(webService+"---\n"+webSlice, "\n", "\r\n"), two},
		{"a list of any", "apiVersion: v1\nkind: List\nitems:\n" + item(webService) + item(webSlice), "1 Service ns1/web\n1 EndpointSlice ns1/web-1"},
		{"JSON", `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},` + "\n\t" + `"spec": {"clusterIP": "172.30.0.1", "ports": [{"port": 80}]}}`, "1 Service default/web"},
		{"fields of an API server", strings.Replace(webService, "spec:", "status: {loadBalancer: {}}\nspec:\n  ipFamilies: [IPv4]\n  selector: {app: web}", 1), "1 Service ns1/web"},
		{"a time", strings.Replace(webService, "namespace: ns1", "namespace: ns1, creationTimestamp: 2026-01-01T00:00:00Z", 1), "1 Service ns1/web"},
		{"an anchor", strings.Replace(webService, "{name: http, port: 80, targetPort: 8080}", "{name: http, port: &p 80, targetPort: *p}", 1), "1 Service ns1/web"},
		{"a headless Service", "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIP: None}\n", "1 Service default/web"},
		{"a Node", "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n", "1 Node n1"},
	} {
		m := parse("m.yaml", []byte(tt.manifest))
		if got := ids(m); got != tt.want || tt.want != "" && len(m.faults) > 0 {
			t.Errorf("%s: objects\n%s\nwant\n%s\nfaults\n%s", tt.name, got, tt.want, faults(m))
		}
	}
}

// item returns a manifest as an item of a list.
func item(manifest string) string {
	return "- " + strings.ReplaceAll(strings.TrimSpace(manifest), "\n", "\n  ") + "\n"
}

func TestManyFaults(t *testing.T) {
	m := parse("m.yaml", []byte(strings.Repeat("---\n}\n", 2*maxFaults)+"---\n"+webService))
	if ids(m) != "401 Service ns1/web" || len(m.faults) != maxFaults+1 || m.faults[maxFaults].Error() != "m.yaml:201: more faults follow" {
		t.Errorf("%s\n%s", ids(m), faults(m))
	}
}

func TestTwiceInOneFile(t *testing.T) {
	m := parse("m.yaml", []byte(webService+"---\n"+webSlice+"---\n"+webService))
	if ids(m) != "1 Service ns1/web\n8 EndpointSlice ns1/web-1" || faults(m) != "m.yaml:22: Service ns1/web is defined at line 1 already; the second definition is not used" {
		t.Errorf("%s\n%s", ids(m), faults(m))
	}
}

// parseAll parses a manifest that must have no faults.
func parseAll(t *testing.T, name string, data []byte) []object {
	t.Helper()
	m := parse(name, data)
	for _, f := range m.faults {
		t.Error(f)
	}
	return m.objects
}

func describe(services []sdk.Service) string {
	var b strings.Builder
	for _, s := range slices.SortedFunc(slices.Values(services), func(a, b sdk.Service) int { return a.Name.Compare(b.Name) }) {
		fmt.Fprintf(&b, "%s\n", s.Name)
		for _, f := range s.Frontends {
			fmt.Fprintf(&b, "  %s\n", f)
		}
		fmt.Fprintf(&b, "  cluster %v\n  local %v\n  serving %v\n  affinity %s health %d\n", s.Cluster, s.Local, s.Serving, s.Affinity, s.HealthPort)
	}
	return b.String()
}

// servicesOf returns the Services of a tracker on node n1 with these objects.
func servicesOf(t *testing.T, objects []object) []sdk.Service {
	t.Helper()
	tracker := track.New(func(n track.Notice) { t.Errorf("%+v", n) })
	tracker.Configure(track.Facts{NodeName: "n1"})
	for _, o := range objects {
		sinks(tracker)[o.id.kind].set(o.value)
	}
	tracker.Synced()
	u, _ := tracker.Cursor(sdk.Description{Features: sdk.Features}).Next()
	return u.Set
}

// TestDefaults checks that a minimal manifest gets the defaults of an API server.
func TestDefaults(t *testing.T) {
	minimal := `
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  sessionAffinity: ClientIP
  clusterIPs: [172.30.0.1, "fd00:172:30::1"]
  ports: [{port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.180.0.1]}]
`
	set := servicesOf(t, parseAll(t, "m.yaml", []byte(minimal)))
	got := describe(set)
	want := `default/web/tcp4
  cluster-ip 172.30.0.1:80
  cluster [10.180.0.1:8080 here]
  local []
  serving []
  affinity 3h0m0s health 0
default/web/tcp6
  cluster-ip [fd00:172:30::1]:80
  cluster []
  local []
  serving []
  affinity 3h0m0s health 0
`
	if got != want || set[0].Affinity != 3*time.Hour {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// FuzzParse checks that parsing ends, returns only sound objects, and returns the same when repeated.
func FuzzParse(f *testing.F) {
	f.Add([]byte(webService + "---\n" + webSlice))
	f.Add([]byte("apiVersion: v1\nkind: List\nitems:\n" + item(webService) + item(webSlice)))
	f.Add([]byte("apiVersion: v1\nkind: Service\nspec: &a\n  b: *a\n"))
	f.Add([]byte("apiVersion: v1\nkind: Service\n<<: {a: b}\nspec: {ports: [{port: 0x10}, !!float 1, !!binary aGk=, ~]}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := parse("m.yaml", data)
		for _, fault := range m.faults {
			if fault.Line < 1 || fault.Message == "" {
				t.Errorf("fault %v in a file of %d bytes", fault, len(data))
			}
		}
		tracker := track.New(nil)
		tracker.Synced()
		for _, o := range m.objects {
			if o.id.name == "" || o.line < 1 {
				t.Errorf("object %+v in a file of %d bytes", o, len(data))
			}
			sinks(tracker)[o.id.kind].set(o.value)
		}
		u, _ := tracker.Cursor(sdk.Description{Features: sdk.Features}).Next()
		for _, s := range u.Set {
			if err := s.Check(); err != nil {
				t.Errorf("%s: %v", s.Name, err)
			}
		}
		if again := parse("m.yaml", data); ids(again) != ids(m) || faults(again) != faults(m) {
			t.Errorf("read again: %s\n%s\nbefore: %s\n%s", ids(again), faults(again), ids(m), faults(m))
		}
	})
}
