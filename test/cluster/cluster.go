// SPDX-License-Identifier: Apache-2.0

/*
Package cluster starts a real etcd and a real kube-apiserver with RBAC for one test,
and ends both with the test. No controllers run unless a test starts them: tests
create EndpointSlices and Nodes themselves. The package must not use a cluster of the
machine. Start reading at Start.

`make peers` builds kube-apiserver into bin/peers; POINTSMAN_APISERVER names another
one. A test skips if kube-apiserver or etcd is missing.
*/
package cluster

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/test/eventually"
)

// Admin is a user with all rights.
const Admin = "admin"

// timeout limits the start of the server, and each request. The start takes seconds on an idle machine.
const timeout = 4 * time.Minute

// Options configure a cluster.
type Options struct {
	Addr  string // address where the server listens; empty: 127.0.0.1
	Audit bool   // log each request, for Asked
	Pods  bool   // the API server accepts Pods, with tokens of service accounts
}

// A Cluster is a running kube-apiserver with its etcd.
type Cluster struct {
	URL string // https://…
	CA  string // file with the certificate of the server's authority
	Dir string // folder of the server's and etcd's files

	t       testing.TB
	options Options
	etcd    string // its URL
	server  *process
}

// Start starts a cluster that runs until the test ends.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	if o.Addr == "" {
		o.Addr = "127.0.0.1"
	}
	binary := findServer(t)
	c := &Cluster{Dir: t.TempDir(), t: t, options: o}
	c.CA = filepath.Join(c.Dir, "apiserver.crt")
	c.startEtcd()
	c.writeSecrets()
	port := freePort(t)
	c.URL = "https://" + net.JoinHostPort(o.Addr, port)
	arguments := []string{
		"--etcd-servers=" + c.etcd,
		"--bind-address=" + o.Addr, "--secure-port=" + port, "--advertise-address=" + advertised(o.Addr), "--cert-dir=" + c.Dir,
		"--service-account-key-file=" + c.file("sa.key"), "--service-account-signing-key-file=" + c.file("sa.key"), "--service-account-issuer=https://kubernetes.test",
		"--token-auth-file=" + c.file("tokens.csv"), "--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.96.0.0/12,fd00:10:96::/108", "--endpoint-reconciler-type=none",
		"--allow-privileged=true", "--kubelet-preferred-address-types=ExternalIP,InternalIP", // no server resolves names of nodes
	}
	if !o.Pods { // the plugin refuses Pods until a controller has created service accounts
		arguments = append(arguments, "--disable-admission-plugins=ServiceAccount")
	}
	if o.Audit {
		arguments = append(arguments, c.auditFlags()...)
	}
	c.server = newProcess(t, "kube-apiserver", append([]string{binary}, arguments...)...)
	c.StartServer()
	return c
}

// advertised returns an address for --advertise-address, which must not be loopback or unspecified.
func advertised(addr string) string {
	if ip := net.ParseIP(addr); ip != nil && !ip.IsLoopback() && !ip.IsUnspecified() {
		return addr
	}
	return "192.0.2.1"
}

// findServer returns the path of kube-apiserver, or skips the test if it or etcd is missing.
func findServer(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("etcd"); err != nil {
		t.Skip("needs etcd: apt-get install etcd-server")
	}
	binary := os.Getenv("POINTSMAN_APISERVER")
	if binary == "" {
		binary = filepath.Join(moduleDir(t), "bin", "peers", "kube-apiserver")
	}
	if _, err := os.Stat(binary); err != nil {
		t.Skip("needs a kube-apiserver: make peers builds one, in some minutes")
	}
	return binary
}

// moduleDir returns the folder of the test's module.
func moduleDir(t testing.TB) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatalf("go env GOMOD: %v", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out)))
}

func (c *Cluster) file(name string) string { return filepath.Join(c.Dir, name) }

func (c *Cluster) startEtcd() {
	c.t.Helper()
	c.etcd = "http://127.0.0.1:" + freePort(c.t)
	peers := "http://127.0.0.1:" + freePort(c.t)
	etcd := newProcess(c.t, "etcd", "etcd",
		"--data-dir="+c.file("etcd"), "--log-level=error", "--logger=zap",
		"--listen-client-urls="+c.etcd, "--advertise-client-urls="+c.etcd,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=default="+peers)
	etcd.start()
	c.t.Cleanup(etcd.stop)
}

// writeSecrets writes Admin's token, and the key that signs tokens of service accounts.
func (c *Cluster) writeSecrets() {
	c.t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		c.t.Fatal(err)
	}
	c.write("sa.key", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	c.write("tokens.csv", fmt.Appendf(nil, "%s,%s,%s,system:masters\n", Token(Admin), Admin, Admin))
}

func (c *Cluster) write(name string, data []byte) {
	c.t.Helper()
	if err := os.WriteFile(c.file(name), data, 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// Token returns the token of a user. It is no secret, because the cluster belongs to a test.
func Token(user string) string { return "token-" + user }

// Kubeconfig writes a kubeconfig with a token, and returns its path. If url is empty, it is c.URL.
func (c *Cluster) Kubeconfig(token, url string) string {
	c.t.Helper()
	if url == "" {
		url = c.URL
	}
	f, err := os.CreateTemp(c.Dir, "kubeconfig-")
	if err != nil {
		c.t.Fatal(err)
	}
	f.Close()
	ca, err := os.ReadFile(c.CA)
	if err != nil {
		c.t.Fatal(err)
	}
	c.write(filepath.Base(f.Name()), fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: test, user: {token: %q}}]
`, url, base64.StdEncoding.EncodeToString(ca), token))
	return f.Name()
}

// StopServer kills the API server. etcd continues to run.
func (c *Cluster) StopServer() { c.server.stop() }

// StartServer starts the API server, and waits until it is ready. On a busy machine, the API server may exit before that:
// StartServer then starts it again, up to four times.
func (c *Cluster) StartServer() {
	c.t.Helper()
	c.server.start()
	c.t.Cleanup(c.server.stop)
	starts := 1
	err := eventually.Try(timeout, func() error {
		switch {
		case c.ready():
			return nil
		case c.server.ended() && starts < 5:
			c.t.Logf("kube-apiserver ended before it was ready; the end of its log:\n%s", c.server.lastOutput())
			c.server.stop()
			c.server.start()
			starts++
		case c.server.ended():
			return eventually.Final(fmt.Errorf("ended before it was ready, %d times", starts))
		}
		return errors.New("not ready")
	})
	if err != nil {
		c.server.stop()
		c.t.Fatalf("kube-apiserver: %v; the end of its log:\n%s", err, c.server.lastOutput())
	}
}

func (c *Cluster) ready() bool {
	ca, err := os.ReadFile(c.CA)
	if err != nil {
		return false
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.URL+"/readyz", nil)
	if err != nil {
		return false
	}
	request.Header.Set("Authorization", "Bearer "+Token(Admin))
	answer, err := client.Do(request)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// Compact removes all earlier revisions from etcd, so that a watch cannot continue from one of them.
func (c *Cluster) Compact() {
	c.t.Helper()
	answer := c.postEtcd("/v3/kv/range", `{"key":"AA=="}`)
	_, rest, _ := strings.Cut(answer, `"revision":"`)
	revision, _, ok := strings.Cut(rest, `"`)
	if !ok {
		c.t.Fatalf("etcd's answer has no revision: %s", answer)
	}
	c.postEtcd("/v3/kv/compaction", `{"revision":"`+revision+`","physical":true}`)
}

func (c *Cluster) postEtcd(path, body string) string {
	c.t.Helper()
	client := &http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Post(c.etcd+path, "application/json", bytes.NewReader([]byte(body)))
	if err != nil {
		c.t.Fatalf("post to etcd: %v", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		c.t.Fatalf("etcd answered %s %s: %v", answer.Status, text, err)
	}
	return string(text)
}

// Addr returns the API server's address as host:port.
func (c *Cluster) Addr() string { return strings.TrimPrefix(c.URL, "https://") }

// freePort returns an unused TCP port.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}
