// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/pointsman/pointsman/"

// A wall lists what a room may import in addition to the standard library, and why. A room is a folder with its
// subfolders, except those that have their own wall.
type wall struct {
	room string
	may  []string // our own packages by folder ("sdk/..." with those below); others by import path prefix
	why  string
}

var walls = []wall{
	{"sdk", nil, "authors of dataplanes import it, and must bring nothing else in"},
	{"internal/lines", nil, "reads what a process prints, at either end of the wire"},
	{"internal/pipe", []string{"github.com/Microsoft/go-winio", "golang.org/x/sys"}, "Windows has named pipes for what is a unix socket elsewhere; the host's verbs, and plugins that listen"},
	{"internal/descriptors", nil, "how many descriptors a process may hold, and what callers get of them"},
	{"internal/notify", nil, "host and plugin alike may be started by a service manager"},
	{"sdk/wire", []string{"sdk", "sdk/wire/...", "internal/...", "github.com/hashicorp/go-plugin", "github.com/hashicorp/go-hclog", "google.golang.org/grpc", "google.golang.org/protobuf", "golang.org/x/sys"},
		"the only room that knows how plugins are talked to; an author links it into a plugin, so what only a host needs is in host/launch"},
	{"sdk/sdktest", []string{"sdk", "sdk/ledger", "sdk/wire", "sdk/sdktest/...", "golang.org/x/tools/txtar", "golang.org/x/sys", "github.com/vishvananda/netns", "github.com/vishvananda/netlink"},
		"third parties hold their dataplanes to it"},
	{"sdk/sdktest/pointsman-conformance", []string{"sdk", "sdk/sdktest", "sdk/wire", "github.com/spf13/pflag"}, "the suite as a program, for those who write plugins; it is no part of the host"},
	{"sdk/conntrack", []string{"sdk", "github.com/vishvananda/netlink", "github.com/vishvananda/netns", "golang.org/x/sys"}, "for any dataplane, also a third party's"},
	{"sdk/statefile", []string{"golang.org/x/sys"}, "how a state file is read and written, in host and dataplanes alike"},
	{"sdk/ledger", []string{"sdk", "sdk/statefile", "github.com/vishvananda/netlink", "github.com/vishvananda/netns", "golang.org/x/sys"}, "for any dataplane, also a third party's"},

	{"sdk/examples", []string{"sdk", "sdk/wire", "golang.org/x/sys"}, "what an author begins from"},
	{"examples/python-relay", nil, "what an author begins from, without the sdk"},
	{"examples/demo", []string{"configs", "github.com/vishvananda/netlink", "golang.org/x/sys"}, "runs the real binaries as a user would, never in process"},

	{"configs", nil, "files for people, and what the demo runs on"},
	{"host/config", []string{"host/phrase", "internal/pipe", "github.com/spf13/viper", "github.com/spf13/pflag", "sigs.k8s.io/json", "sigs.k8s.io/yaml", "k8s.io/kube-proxy/config", "k8s.io/api", "k8s.io/apimachinery"},
		"the one file a user writes; nothing else reads files of settings"},
	{"host/watch", []string{"host/track", "github.com/fsnotify/fsnotify", "k8s.io/client-go", "k8s.io/klog", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/utils", "sigs.k8s.io/json", "sigs.k8s.io/yaml"},
		"where Services come from; it only tells the tracker"},
	{"host/reach", []string{"sdk", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/utils"}, "pure: which endpoints this node may use"},
	{"host/track", []string{"sdk", "host/reach", "k8s.io/api", "k8s.io/apimachinery"}, "pure: what each dataplane has not yet confirmed"},
	{"host/feed", []string{"sdk", "host/track"}, "the loop of one dataplane; it knows neither where Services come from nor where they go"},
	{"host/launch", []string{"sdk", "sdk/statefile", "sdk/wire", "internal/lines", "github.com/hashicorp/go-plugin", "github.com/hashicorp/go-hclog", "golang.org/x/sys", "golang.org/x/time"}, "finds, starts, watches and ends plugins' processes; how they are called is sdk/wire's"},
	{"host/plane", []string{"sdk", "sdk/statefile", "host/launch"}, "which process of which dataplane has which role: it decides, and keeps what the next host must know in one file; it acts on nothing"},
	{"host/canary", []string{"sdk", "host/track", "k8s.io/api", "k8s.io/apimachinery"}, "a Service of the host's own, and nothing of what asks for it"},
	{"host/health", []string{"internal/descriptors", "sdk", "host/phrase", "host/track", "github.com/prometheus/client_golang", "github.com/prometheus/client_model", "golang.org/x/net", "sigs.k8s.io/yaml"}, "answers probes and scrapes, and judges by what it is told whether the node is well; it acts on nothing"},
	{"host/report", []string{"sdk"}, "one call for each thing that happened"},
	{"host/admin", []string{"golang.org/x/net", "internal/pipe"}, "the verbs' way in; its JSON is a promise, so its types are its own"},
	{"host/web", []string{"host/admin", "host/phrase", "github.com/prometheus/client_golang", "golang.org/x/time"}, "pages of what admin and the metrics say; it asks nothing else, and acts on nothing"},
	{"host/scaffold", []string{"examples/python-relay", "sdk/examples", "sdk/wire"}, "what `plugin new` writes; of the examples it has the text alone"},
	{"host/doctor", []string{"host/admin", "host/phrase", "golang.org/x/sys"}, "what a node has that no dataplane decides; it only looks"},
	{"host/phrase", nil, "words, for events and verbs alike"},
	{"host/binaries", []string{"host/admin", "host/config", "host/launch", "host/phrase", "sdk/wire"}, "which plugins are installed, and what their binaries say; it works without a host"},
	{"host/services", []string{"sdk", "sdk/wire", "host/admin", "host/health", "host/phrase", "host/track"}, "what operators ask about Services and packets; it changes nothing"},
	{"host/dataplanes", []string{"sdk", "sdk/wire", "host/admin", "host/binaries", "host/canary", "host/config", "host/feed", "host/health", "host/launch", "host/phrase", "host/plane", "host/report", "host/services", "host/track", "github.com/hashicorp/go-hclog", "golang.org/x/time"},
		"where feed, launch and swap meet; it knows neither the command line nor the API server"},
	{"host/pointsman", []string{"host/...", "sdk", "sdk/statefile", "sdk/wire", "internal/lines", "internal/notify", "github.com/hashicorp/go-hclog", "github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/sys", "golang.org/x/term", "k8s.io/apimachinery/pkg/util/wait", "k8s.io/utils/cpuset", "sigs.k8s.io/yaml"},
		"constructs, connects, waits"},
	{"host/kubectl-pointsman", []string{"host/admin", "github.com/spf13/cobra", "k8s.io/client-go", "k8s.io/klog", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/streaming", "sigs.k8s.io/yaml"},
		"runs where kubectl does, and on no node; it asks the verbs of the hosts, and knows the shape of their answers alone"},

	{"plugins", []string{"sdk", "sdk/...", "golang.org/x/sys", "github.com/vishvananda/netlink", "github.com/vishvananda/netns"},
		"a dataplane never sees Kubernetes, the host, or another dataplane"},
	{"plugins/internal", []string{"sdk", "sdk/...", "plugins/internal/...", "github.com/coreos/go-iptables", "github.com/vishvananda/netlink", "github.com/vishvananda/netns", "golang.org/x/sys"},
		"what dataplanes share"},
	{"plugins/iptables", []string{"sdk", "sdk/...", "plugins/internal/...", "plugins/iptables", "github.com/vishvananda/netlink", "github.com/vishvananda/netns", "golang.org/x/sys"}, "a dataplane never sees Kubernetes, the host, or another dataplane"},
	{"plugins/ipvs", []string{"sdk", "sdk/...", "plugins/internal/...", "plugins/ipvs", "github.com/moby/ipvs", "github.com/vishvananda/netlink", "github.com/vishvananda/netns", "golang.org/x/sys"}, "a dataplane never sees Kubernetes, the host, or another dataplane"},
	{"plugins/nftables", []string{"sdk", "sdk/...", "plugins/internal/...", "plugins/nftables"}, "a dataplane never sees Kubernetes, the host, or another dataplane"},
	{"plugins/userspace", []string{"sdk", "sdk/...", "plugins/internal/...", "plugins/userspace/...", "github.com/vishvananda/netlink", "github.com/vishvananda/netns", "golang.org/x/sys"}, "a dataplane never sees Kubernetes, the host, or another dataplane"},
	{"test/relaytest", []string{"sdk", "test/eventually"}, "for tests alone; it waits as all tests do"},
	{"plugins/userspace/relay", []string{"sdk", "golang.org/x/sys"}, "it carries connections, and knows neither the rules that lead them to it nor what writes those"},
}

// TestWalls checks every package's imports against the walls. Tests may import more than the package they test, because
// they are not linked into anything.
func TestWalls(t *testing.T) {
	for _, pkg := range packages(t) {
		room := strings.TrimPrefix(pkg.ImportPath, module)
		if room == "test" || strings.HasPrefix(room, "test/") {
			continue
		}
		w, ok := wallOf(room)
		if !ok {
			t.Errorf("%s is in no room: add it to the walls, with a reason", room)
			continue
		}
		for _, imported := range pkg.Imports {
			if !standard(imported) && !w.allows(imported) {
				t.Errorf("%s imports %s, which the wall around %s forbids: %s", room, imported, w.room, w.why)
			}
		}
	}
}

// TestKeptInOneRoom checks the most important walls the other way round: by the imported package.
func TestKeptInOneRoom(t *testing.T) {
	only := map[string][]string{
		module + "sdk/sdktest":                {"sdk/sdktest", "plugins/internal/rulestest"}, // no test kit in a program that runs on a node
		module + "plugins/internal/rulestest": {},                                            // only tests import it
		"google.golang.org/grpc":              {"sdk/wire"},
		"github.com/hashicorp/go-plugin":      {"sdk/wire", "host/launch"}, // its server, and its client
		"k8s.io/client-go":                    {"host/watch", "host/kubectl-pointsman", "test"},
		"k8s.io/client-go/kubernetes":         {"host/kubectl-pointsman", "test"}, // it keeps every kind in memory
		"github.com/spf13/viper":              {"host/config"},
	}
	for _, pkg := range packages(t) {
		room := strings.TrimPrefix(pkg.ImportPath, module)
		if within(room, "test") {
			continue
		}
		for _, imported := range pkg.Imports {
			for what, rooms := range only {
				inside := slices.ContainsFunc(rooms, func(r string) bool { return within(room, r) })
				if within(imported, what) && !inside {
					t.Errorf("%s imports %s, which belongs to %s alone", room, imported, strings.Join(rooms, ", "))
				}
			}
		}
	}
}

// TestAPluginLinksNoHost: a plugin links no package of the host.
func TestAPluginLinksNoHost(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", module+"sdk/examples/printer").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for _, dep := range strings.Fields(string(out)) {
		if within(dep, module+"host") || within(dep, "k8s.io") {
			t.Errorf("sdk/examples/printer is built with %s", dep)
		}
	}
}

// wallOf returns the wall with the longest path around room.
func wallOf(room string) (wall, bool) {
	var best wall
	for _, w := range walls {
		if within(room, w.room) && len(w.room) > len(best.room) {
			best = w
		}
	}
	return best, best.room != ""
}

func (w wall) allows(imported string) bool {
	return slices.ContainsFunc(w.may, func(may string) bool {
		if below, ok := strings.CutSuffix(may, "/..."); ok {
			return within(imported, module+below)
		}
		if strings.Contains(strings.SplitN(may, "/", 2)[0], ".") {
			return within(imported, may)
		}
		return imported == module+may
	})
}

func within(p, root string) bool { return p == root || strings.HasPrefix(p, root+"/") }

func standard(p string) bool { return !strings.Contains(strings.SplitN(p, "/", 2)[0], ".") }

type goPackage struct {
	ImportPath string
	Imports    []string
}

// packages lists the module's packages as the go command sees them here.
func packages(t *testing.T) []goPackage {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", module+"...")
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var pkg goPackage
		if err := dec.Decode(&pkg); err != nil {
			t.Fatalf("go list: %v", err)
		}
		all = append(all, pkg)
	}
	if len(all) < 2 {
		t.Fatalf("go list names %d packages; run this from %s", len(all), path.Dir(module))
	}
	return all
}
