// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// An object is one of Kubernetes', as JSON has it.
type object map[string]any

// An api is as much of an API server as a kube-proxy needs: lists of Services and
// EndpointSlices, one Node, and watches that bring nothing.
type api struct{ lists map[string][]object }

const (
	servicesPath = "/api/v1/services"
	slicesPath   = "/apis/discovery.k8s.io/v1/endpointslices"
	nodesPath    = "/api/v1/nodes"
)

// kinds are what the paths list.
var kinds = map[string][2]string{
	servicesPath: {"v1", "Service"}, slicesPath: {"discovery.k8s.io/v1", "EndpointSlice"}, nodesPath: {"v1", "Node"},
	"/apis/networking.k8s.io/v1/servicecidrs": {"networking.k8s.io/v1", "ServiceCIDR"},
}

func serveAPI(t testing.TB, services []sdk.Service) (url string) {
	t.Helper()
	a := &api{lists: make(map[string][]object)}
	for i, svc := range services {
		service, slice := objects(i, svc)
		a.lists[servicesPath] = append(a.lists[servicesPath], service)
		a.lists[slicesPath] = append(a.lists[slicesPath], slice)
	}
	a.lists[nodesPath] = []object{{"metadata": object{"name": "n1", "resourceVersion": "1"}, "status": object{"addresses": []object{{"type": "InternalIP", "address": "192.0.2.10"}}}}}
	server := httptest.NewServer(a)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// objects are the two that come to svc.
func objects(i int, svc sdk.Service) (service, slice object) {
	name := fmt.Sprintf("%s-%s", svc.Name.Service, strings.ToLower(svc.Name.Protocol.String()))
	protocol := strings.ToUpper(svc.Name.Protocol.String())
	port := object{"protocol": protocol, "name": "", "targetPort": 8080}
	spec := object{"type": "ClusterIP", "ports": []object{port}, "ipFamilies": []string{"IPv4"}, "internalTrafficPolicy": "Cluster", "sessionAffinity": "None"}
	for _, f := range svc.Frontends {
		switch f.Kind {
		case sdk.ClusterIP:
			spec["clusterIP"], spec["clusterIPs"], port["port"] = f.Addr.Addr().String(), []string{f.Addr.Addr().String()}, f.Addr.Port()
		case sdk.NodePort:
			spec["type"], port["nodePort"], spec["externalTrafficPolicy"] = "NodePort", f.Addr.Port(), f.Policy.String()
		}
	}
	if svc.Affinity > 0 {
		spec["sessionAffinity"] = "ClientIP"
		spec["sessionAffinityConfig"] = object{"clientIP": object{"timeoutSeconds": int(svc.Affinity / time.Second)}}
	}
	meta := object{"namespace": svc.Name.Namespace, "name": name, "uid": fmt.Sprint("uid-", i), "resourceVersion": "1"}
	service = object{"metadata": meta, "spec": spec}
	return service, sliceOf(svc, name)
}

func sliceOf(svc sdk.Service, name string) object {
	var endpoints []object
	for _, ep := range svc.Cluster {
		node := "n2"
		if ep.OnNode {
			node = "n1"
		}
		endpoints = append(endpoints, object{"addresses": []string{ep.Addr.Addr().String()}, "nodeName": node, "conditions": object{"ready": true, "serving": true, "terminating": false}})
	}
	return object{
		"metadata":    object{"namespace": svc.Name.Namespace, "name": name, "labels": object{"kubernetes.io/service-name": name}, "resourceVersion": "1"},
		"addressType": "IPv4", "endpoints": endpoints,
		"ports": []object{{"name": "", "port": 8080, "protocol": strings.ToUpper(svc.Name.Protocol.String())}},
	}
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	path := r.URL.Path
	kind, known := kinds[path]
	switch {
	case strings.HasPrefix(path, nodesPath+"/"):
		a.answer(w, a.typed(nodesPath, a.lists[nodesPath][0]))
	case !known:
		w.WriteHeader(http.StatusNotFound)
		a.answer(w, object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404})
	case r.URL.Query().Get("sendInitialEvents") != "": // lists and watches are enough
		w.WriteHeader(http.StatusUnprocessableEntity)
		a.answer(w, object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422})
	case r.URL.Query().Get("watch") != "":
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		items := a.lists[path]
		if items == nil {
			items = []object{}
		}
		a.answer(w, object{"kind": kind[1] + "List", "apiVersion": kind[0], "metadata": object{"resourceVersion": "1"}, "items": items})
	}
}

func (a *api) answer(w http.ResponseWriter, o object) { _ = json.NewEncoder(w).Encode(o) }

func (a *api) typed(path string, o object) object {
	o["apiVersion"], o["kind"] = kinds[path][0], kinds[path][1]
	return o
}

// asNode is svc as a kube-proxy with this api tells it apart: it has other names.
func asNode(svc sdk.Service) sdk.Service {
	svc.Name.Service = fmt.Sprintf("%s-%s", svc.Name.Service, strings.ToLower(svc.Name.Protocol.String()))
	return svc
}

// kubeProxy starts the real kube-proxy in a mode of its own, and stops it with the
// test, or before. Its metrics are at an address of their own.
func kubeProxy(t testing.TB, backend iptables.Backend, url, proxyMode string) (process *os.Process, metrics string, stop func()) {
	t.Helper()
	binary, err := filepath.Abs("../../bin/peers/kube-proxy")
	if err == nil {
		_, err = os.Stat(binary)
	}
	if err != nil {
		t.Skip("needs the real kube-proxy: make peers builds one, in some minutes")
	}
	metrics = "127.0.0.1:" + freePort(t)
	cmd := exec.Command(binary, "--master="+url, "--proxy-mode="+proxyMode, "--hostname-override=n1", "--cluster-cidr=10.180.0.0/16",
		"--kube-api-content-type=application/json", "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s",
		"--healthz-bind-address=127.0.0.1:"+freePort(t), "--metrics-bind-address="+metrics)
	cmd.Env = append(os.Environ(), "PATH="+plainNames(t, backend)+":"+os.Getenv("PATH"))
	log, err := os.Create(filepath.Join(t.TempDir(), "kube-proxy.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed, and says so
		log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("kube-proxy: %.4000s", text)
		}
	})
	t.Cleanup(stop)
	return cmd.Process, "http://" + metrics + "/metrics", stop
}

// synced reports whether a kube-proxy with these metrics has written its rules of both families. It writes
// nothing more until something changes.
func synced(url string) bool {
	at := scrape(url, `kubeproxy_sync_proxy_rules_last_timestamp_seconds\{ip_family="(IPv\d)"\}`)
	return at["IPv4"] > 0 && at["IPv6"] > 0
}

// scrape are the metrics, of IPv4 or of no family, whose names the pattern describes, by what its group
// matches.
func scrape(url, pattern string) map[string]float64 {
	answer, err := http.Get(url)
	if err != nil {
		return nil
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	all := make(map[string]float64)
	for _, m := range regexp.MustCompile(`(?m)^`+pattern+`(?:\{ip_family="IPv4"\})? (\S+)$`).FindAllStringSubmatch(string(text), -1) {
		all[m[1]], _ = strconv.ParseFloat(m[2], 64)
	}
	return all
}

// plainNames is a folder where the programs of backend have their plain names.
func plainNames(t testing.TB, backend iptables.Backend) string {
	t.Helper()
	dir := t.TempDir()
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, verb := range []string{"", "-save", "-restore"} {
			real, err := exec.LookPath(family + "-" + string(backend) + verb)
			if err == nil {
				err = os.Symlink(real, filepath.Join(dir, family+verb))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return fmt.Sprint(netip.MustParseAddrPort(l.Addr().String()).Port())
}
