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

func ids(m Manifest) string {
	var lines []string
	for _, o := range m.Objects {
		lines = append(lines, fmt.Sprintf("%d %s", o.Line, o.ID))
	}
	return strings.Join(lines, "\n")
}

func faults(m Manifest) string {
	var lines []string
	for _, f := range m.Faults {
		lines = append(lines, f.Error())
	}
	return strings.Join(lines, "\n")
}

// What is wrong is said with the line it unchanged on, and does not hide what is
// right.
func TestFaults(t *testing.T) {
	service := func(spec string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  " + strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  ") + "\n"
	}
	slice := func(rest string) string {
		return "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, labels: {kubernetes.io/service-name: web}}\n" + rest
	}
	tests := []struct{ name, manifest, want string }{
		{"no YAML", "a: b\nc\n d: e\n", "m.yaml:2: this is no YAML: "},
		{"a tab", "a:\n\tb: c\n", "m.yaml:2: this is no YAML: found character that cannot start any token"},
		{"a list without an end", "a: 1\nb: [1, 2\nc: 3\n", "m.yaml:2: this is no YAML: did not find expected ',' or ']'"},
		{"no object", "- a\n- b\n", "m.yaml:1: here should be an object with apiVersion and kind"},
		{"no kind", "metadata: {name: web}\n", "m.yaml:1: apiVersion or kind is missing"},
		{"an old version", "apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\n", "m.yaml:1: EndpointSlice of discovery.k8s.io/v1beta1 is not known; write apiVersion: discovery.k8s.io/v1"},
		{"Endpoints", "apiVersion: v1\nkind: Endpoints\n", "m.yaml:1: Endpoints are not read; write an EndpointSlice"},
		{"another kind", "apiVersion: apps/v1\nkind: Deployment\n", "m.yaml:1: Deployment is passed over; only Service, EndpointSlice and Node are read"},
		{"a list without items", "apiVersion: v1\nkind: List\n", "m.yaml:1: a list needs items"},

		{"a misspelt field", service("clusterIp: 172.30.0.1\nports: [{port: 80}]"), "m.yaml:5: there is no field spec.clusterIp"},
		{"a misspelt field in a list", service("clusterIP: 172.30.0.1\nports:\n- port: 80\n- port: 81\n  nodeport: 3"), "m.yaml:9: there is no field spec.ports[1].nodeport"},
		{"a field twice", service("clusterIP: 172.30.0.1\nports: [{port: 80}]\nclusterIP: 172.30.0.2"), `m.yaml:7: field "clusterIP" is written twice`},
		{"a word for a number", service("clusterIP: 172.30.0.1\nports:\n- port: http"), "m.yaml:7: spec.ports.port: here should be a number, not a string"},
		{"a number for a word", service("clusterIP: 172.30.0.1\nports:\n- port: 80\n  name: 80"), "m.yaml:8: spec.ports.name: here should be a string, not a number"},
		{"a word for a list", service("clusterIP: 172.30.0.1\nports: http"), "m.yaml:6: spec.ports: here should be a list, not a string"},
		{"a number too large", service("clusterIP: 172.30.0.1\nports:\n- port: 99999999999"), "m.yaml:7: spec.ports.port: here should be a whole number up to 2147483647, not 99999999999"},
		{"a part of a number", service("clusterIP: 172.30.0.1\nports:\n- port: 80.5"), "m.yaml:7: spec.ports.port: here should be a whole number up to 2147483647, not 80.5"},

		{"no cluster IP", service("ports: [{port: 80}]"), "m.yaml:4: spec.clusterIP: is missing: an API server would choose an address, in a file you do"},
		{"a cluster IP that is none", service("clusterIP: web\nports: [{port: 80}]"), `m.yaml:5: spec.clusterIP: "web" is no IP address`},
		{"two cluster IPs of a family", service("clusterIPs: [172.30.0.1, 172.30.0.2]\nports: [{port: 80}]"), "m.yaml:5: spec.clusterIPs[1]: 172.30.0.2 is of the same IP family as 172.30.0.1"},
		{"cluster IPs that differ", service("clusterIP: 172.30.0.3\nclusterIPs: [172.30.0.1]\nports: [{port: 80}]"), `m.yaml:6: spec.clusterIPs[0]: "172.30.0.1" differs from spec.clusterIP, which is "172.30.0.3"`},
		{"no ports", service("clusterIP: 172.30.0.1"), "m.yaml:4: spec.ports: is missing"},
		{"port 0", service("clusterIP: 172.30.0.1\nports:\n- port: 0"), "m.yaml:7: spec.ports[0].port: 0 is not from 1 to 65535"},
		{"port 65536", service("clusterIP: 172.30.0.1\nports:\n- port: 65536"), "m.yaml:7: spec.ports[0].port: 65536 is not from 1 to 65535"},
		{"an unknown protocol", service("clusterIP: 172.30.0.1\nports:\n- port: 80\n  protocol: QUIC"), `m.yaml:8: spec.ports[0].protocol: "QUIC" is none of ["TCP" "UDP" "SCTP"]`},
		{"ports without names", service("clusterIP: 172.30.0.1\nports:\n- port: 80\n  name: a\n- port: 81"), "m.yaml:9: spec.ports[1].name: is missing: with several ports each needs one"},
		{"ports of one name", service("clusterIP: 172.30.0.1\nports:\n- {port: 80, name: a}\n- {port: 81, name: a}"), `m.yaml:8: spec.ports[1].name: "a" is the name of spec.ports[0] too`},
		{"ports of one number", service("clusterIP: 172.30.0.1\nports:\n- {port: 80, name: a}\n- {port: 80, name: b}"), "m.yaml:8: spec.ports[1].port: port 80/TCP is that of spec.ports[0] too"},
		{"a port's name", service("clusterIP: 172.30.0.1\nports:\n- {port: 80, name: HTTP}"), `m.yaml:7: spec.ports[0].name: "HTTP": a lowercase RFC 1123 label`},
		{"a node port to be chosen", service("type: NodePort\nclusterIP: 172.30.0.1\nports:\n- port: 80"), "m.yaml:8: spec.ports[0].nodePort: is missing: an API server would choose a port, in a file you do"},
		{"a node port of a ClusterIP", service("clusterIP: 172.30.0.1\nports:\n- port: 80\n  nodePort: 30080"), "m.yaml:8: spec.ports[0].nodePort: is only for the types NodePort and LoadBalancer"},
		{"an unknown type", service("type: Clusterip\nclusterIP: 172.30.0.1\nports: [{port: 80}]"), `m.yaml:5: spec.type: "Clusterip" is none of`},
		{"an unknown policy", service("externalTrafficPolicy: local\nclusterIP: 172.30.0.1\nports: [{port: 80}]"), `m.yaml:5: spec.externalTrafficPolicy: "local" is none of ["Cluster" "Local"]`},
		{"affinity for ever", service("sessionAffinity: ClientIP\nsessionAffinityConfig:\n  clientIP:\n    timeoutSeconds: 86401\nclusterIP: 172.30.0.1\nports: [{port: 80}]"), "m.yaml:8: spec.sessionAffinityConfig.clientIP.timeoutSeconds: 86401 is not from 1 to 86400"},
		{"a source range", service("loadBalancerSourceRanges:\n- 10.0.0.0/8\n- 10.0.0.1\nclusterIP: 172.30.0.1\nports: [{port: 80}]"), `m.yaml:7: spec.loadBalancerSourceRanges[1]: "10.0.0.1" is no range such as 10.0.0.0/8`},
		{"an external IP", service("externalIPs: [web]\nclusterIP: 172.30.0.1\nports: [{port: 80}]"), `m.yaml:5: spec.externalIPs[0]: "web" is no IP address`},
		{"no name", "apiVersion: v1\nkind: Service\nspec: {clusterIP: 172.30.0.1, ports: [{port: 80}]}\n", "m.yaml:1: metadata.name: is missing"},
		{"a name too long", "apiVersion: v1\nkind: Service\nmetadata:\n  name: " + strings.Repeat("a", 64) + "\nspec: {clusterIP: 172.30.0.1, ports: [{port: 80}]}\n", "m.yaml:4: metadata.name: "},

		{"a slice's address type", slice("addressType: ipv4\n"), `m.yaml:4: addressType: "ipv4" is none of ["IPv4" "IPv6" "FQDN"]`},
		{"no address type", slice(""), `m.yaml:1: addressType: "" is none of`},
		{"an endpoint without addresses", slice("addressType: IPv4\nendpoints:\n- addresses: [10.0.0.1]\n- nodeName: n1\n"), "m.yaml:7: endpoints[1].addresses: is missing"},
		{"a slice's port", slice("addressType: IPv4\nports:\n- port: 70000\n"), "m.yaml:6: ports[0].port: 70000 is not from 1 to 65535"},
		{"a node's address", "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus:\n  addresses:\n  - {type: InternalIP, address: here}\n", `m.yaml:6: status.addresses[0].address: "here" is no IP address`},
		{"deep nesting", "apiVersion: v1\nkind: Service\nspec: " + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "\n", "m.yaml:3: values are nested deeper than 64"},
		{"an alias of itself", "apiVersion: v1\nkind: Service\nspec: &a\n  b: *a\n", "m.yaml:3: values are nested deeper than 64"},
		{"few lines that are much", "apiVersion: v1\nkind: Service\na: &a [" + strings.Repeat("x,", 999) + "]\nb: &b [" + strings.Repeat("*a,", 999) + "]\nc: [" + strings.Repeat("*b,", 99) + "]\n", "the object is larger than 32 MiB"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := parsed("m.yaml", []byte(tt.manifest))
			if len(m.Faults) != 1 || !strings.Contains(faults(m), tt.want) {
				t.Errorf("\n%s\nfaults\n%s\nwant one\n%s", clip(tt.manifest), faults(m), tt.want)
			}
			if len(m.Objects) > 0 {
				t.Errorf("and yet %s", ids(m))
			}
			lines := strings.Count(tt.manifest, "\n")
			m = parsed("m.yaml", []byte(tt.manifest+"---\n"+webService))
			if want := fmt.Sprintf("%d Service ns1/web", lines+2); ids(m) != want {
				t.Errorf("a good document behind it comes to %q, want %q", ids(m), want)
			}
		})
	}
}

func clip(s string) string { return s[:min(len(s), 400)] }

func TestDocuments(t *testing.T) {
	tests := []struct{ name, manifest, want string }{
		{"none", "", ""},
		{"comments", "# nothing\n---\n# here\n", ""},
		{"two", webService + "---\n" + webSlice, "1 Service ns1/web\n9 EndpointSlice ns1/web-1"},
		{"separators all over", "---\n---\n" + webService + "--- # next\n" + webSlice + "---", "3 Service ns1/web\n11 EndpointSlice ns1/web-1"},
		{"a line that only looks like one", webService + "#\n---x: y\n", ""},
		{"line ends of Windows", strings.ReplaceAll(webService+"---\n"+webSlice, "\n", "\r\n"), "1 Service ns1/web\n9 EndpointSlice ns1/web-1"},
		{"a list of any", "apiVersion: v1\nkind: List\nitems:\n" + item(webService) + item(webSlice), "4 Service ns1/web\n11 EndpointSlice ns1/web-1"},
		{"a list that says for its items what they are", "apiVersion: v1\nkind: ServiceList\nitems:\n" + item(strings.Join(strings.Split(webService, "\n")[2:], "\n")), "4 Service ns1/web"},
		{"JSON", `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},` + "\n\t" + `"spec": {"clusterIP": "172.30.0.1", "ports": [{"port": 80}]}}`, "1 Service default/web"},
		{"what an API server says of itself", strings.Replace(webService, "spec:", "status: {loadBalancer: {}}\nspec:\n  ipFamilies: [IPv4]\n  selector: {app: web}", 1), "1 Service ns1/web"},
		{"a time", strings.Replace(webService, "namespace: ns1", "namespace: ns1, creationTimestamp: 2026-01-01T00:00:00Z", 1), "1 Service ns1/web"},
		{"an anchor", strings.Replace(webService, "{name: http, port: 80, targetPort: 8080}", "{name: http, port: &p 80, targetPort: *p}", 1), "1 Service ns1/web"},
		{"a headless one", "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIP: None}\n", "1 Service default/web"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := parsed("m.yaml", []byte(tt.manifest))
			if got := ids(m); got != tt.want {
				t.Errorf("%s\ncomes to\n%s\nwant\n%s\nfaults\n%s", tt.manifest, got, tt.want, faults(m))
			}
			if tt.want != "" && len(m.Faults) > 0 {
				t.Errorf("faults\n%s", faults(m))
			}
		})
	}
}

// item is a manifest as an item of a list.
func item(manifest string) string {
	return "- " + strings.ReplaceAll(strings.TrimSpace(manifest), "\n", "\n  ") + "\n"
}

func TestTwiceInOneFile(t *testing.T) {
	m := parsed("m.yaml", []byte(webService+"---\n"+webSlice+"---\n"+webService))
	if ids(m) != "1 Service ns1/web\n9 EndpointSlice ns1/web-1" || faults(m) != "m.yaml:23: Service ns1/web is defined on line 1 already; this one is not used" {
		t.Errorf("%s\n%s", ids(m), faults(m))
	}
}

// parsed is what a file says that was not read before.
func parsed(name string, data []byte) Manifest {
	m, _ := parse(name, data, nil)
	return m
}

func parseAll(t *testing.T, name string, data []byte) []Object {
	t.Helper()
	m := parsed(name, data)
	for _, f := range m.Faults {
		t.Error(f)
	}
	return m.Objects
}

func describe(services []sdk.Service) string {
	var b strings.Builder
	for _, s := range slices.SortedFunc(slices.Values(services), func(a, b sdk.Service) int { return a.Name.Compare(b.Name) }) {
		fmt.Fprintf(&b, "%s\n", s.Name)
		for _, f := range s.Frontends {
			fmt.Fprintf(&b, "  %s\n", f)
		}
		fmt.Fprintf(&b, "  cluster %v\n  local %v\n  serving %v\n  affinity %s health %d hints %v\n", s.Cluster, s.Local, s.Serving, s.Affinity, s.HealthPort, s.Hints)
	}
	return b.String()
}

// tell is what a tracker on node n1 hands out that was given these objects.
func tell(t *testing.T, objects []Object) []sdk.Service {
	t.Helper()
	tracker := track.New(func(n track.Notice) { t.Errorf("%+v", n) })
	tracker.Configure(track.Facts{NodeName: "n1"})
	for _, o := range objects {
		o.Tell(tracker)
	}
	tracker.Synced()
	u, _ := tracker.Cursor(sdk.Description{Features: sdk.Features}).Next()
	return u.Set
}

// A manifest that says only what it must comes to what an API server would make
// of it.
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
	set := tell(t, parseAll(t, "m.yaml", []byte(minimal)))
	got := describe(set)
	want := `default/web/tcp4
  cluster-ip 172.30.0.1:80
  cluster [10.180.0.1:8080 here]
  local []
  serving []
  affinity 3h0m0s health 0 hints map[]
default/web/tcp6
  cluster-ip [fd00:172:30::1]:80
  cluster []
  local []
  serving []
  affinity 3h0m0s health 0 hints map[]
`
	if got != want || set[0].Affinity != 3*time.Hour {
		t.Errorf("comes to\n%s\nwant\n%s", got, want)
	}
}

// The largest that Kubernetes allows.
func TestLimits(t *testing.T) {
	label, subdomain := strings.Repeat("n", 63), strings.Repeat("s.", 126)+"s"
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: %s}\nspec:\n  clusterIP: 172.30.0.1\n  ports:\n", label, label)
	for i := range 100 {
		fmt.Fprintf(&b, "  - {name: %s%03d, port: %d}\n", label[:60], i, i+1)
	}
	for i := range 10 {
		fmt.Fprintf(&b, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s%d, namespace: %s, labels: {kubernetes.io/service-name: %s}}\naddressType: IPv4\nports:\n", subdomain[:252], i, label, label)
		for j := range 100 {
			fmt.Fprintf(&b, "- {name: %s%03d, port: %d}\n", label[:60], j, j+1)
		}
		b.WriteString("endpoints:\n")
		for j := range 1000 {
			fmt.Fprintf(&b, "- addresses: [10.%d.%d.%d]\n", i, j/250, 1+j%250)
		}
	}
	set := tell(t, parseAll(t, "m.yaml", []byte(b.String())))
	if len(set) != 100 {
		t.Fatalf("%d Services", len(set))
	}
	for _, s := range set {
		if len(s.Cluster) != 10_000 {
			t.Errorf("%s has %d endpoints", s.Name, len(s.Cluster))
		}
	}
}

// Whatever bytes come, reading them ends, and what is sound comes out the same
// when it is read again.
func FuzzParse(f *testing.F) {
	f.Add([]byte(webService + "---\n" + webSlice))
	f.Add([]byte("apiVersion: v1\nkind: List\nitems:\n" + item(webService) + item(webSlice)))
	f.Add([]byte("apiVersion: v1\nkind: Service\nspec: &a\n  b: *a\n"))
	f.Add([]byte("apiVersion: v1\nkind: Service\n<<: {a: b}\nspec: {ports: [{port: 0x10}, !!float 1, !!binary aGk=, ~]}\n"))
	f.Add([]byte("? [a]\n: b\n--- \n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := parsed("m.yaml", data)
		lines := len(data) + 1 // YAML knows five ways to end a line
		for _, fault := range m.Faults {
			if fault.Line < 0 || fault.Line > lines+1 || fault.Message == "" {
				t.Errorf("fault %v in a file of %d bytes", fault, len(data))
			}
		}
		tracker := track.New(nil)
		tracker.Synced()
		for _, o := range m.Objects {
			if o.ID.Name == "" || o.Line < 1 || o.Line > lines {
				t.Errorf("object %+v in a file of %d bytes", o, len(data))
			}
			o.Tell(tracker)
		}
		u, _ := tracker.Cursor(sdk.Description{Features: sdk.Features}).Next()
		for _, s := range u.Set {
			if err := s.Check(); err != nil {
				t.Errorf("%s: %v", s.Name, err)
			}
		}
		if again := parsed("m.yaml", data); ids(again) != ids(m) || faults(again) != faults(m) {
			t.Errorf("read again: %s\n%s\nbefore: %s\n%s", ids(again), faults(again), ids(m), faults(m))
		}
	})
}
