// SPDX-License-Identifier: Apache-2.0

/*
Package cluster starts a real kube-apiserver, with RBAC on, over a real etcd, for
one test, and takes both away when the test ends. Only the controllers run that a
test starts: it writes EndpointSlices and Nodes itself.

The kube-apiserver is the one that `make peers` builds into bin/peers; another one
is used if POINTSMAN_APISERVER names it. Without one, and without etcd, the test
is skipped.
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

// Admin is a user who may do everything.
const Admin = "admin"

const timeout = 4 * time.Minute // it takes seconds, but longer on a busy machine

// Options are what differs between tests.
type Options struct {
	Addr  string   // address of the server; empty: 127.0.0.1
	Wrap  []string // prefix of both commands, such as ip netns exec NAME
	Users []string // known besides Admin, without any rights; their token is Token(NAME)
	Audit bool     // note every request: see Asked
	Pods  bool     // a kubelet runs pods, each with the token of its service account
}

// A Cluster is a running kube-apiserver with its etcd.
type Cluster struct {
	URL string // https://…
	CA  string // file with the server's authority
	Dir string

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
	binary := find(t)
	c := &Cluster{Dir: t.TempDir(), t: t, options: o}
	c.CA = filepath.Join(c.Dir, "apiserver.crt")
	c.startEtcd()
	c.writeSecrets()
	port := free(t)
	c.URL = "https://" + net.JoinHostPort(o.Addr, port)
	arguments := []string{
		"--etcd-servers=" + c.etcd,
		"--bind-address=" + o.Addr, "--secure-port=" + port, "--advertise-address=" + advertised(o.Addr), "--cert-dir=" + c.Dir,
		"--service-account-key-file=" + c.file("sa.key"), "--service-account-signing-key-file=" + c.file("sa.key"), "--service-account-issuer=https://kubernetes.test",
		"--token-auth-file=" + c.file("tokens.csv"), "--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.96.0.0/12,fd00:10:96::/108", "--endpoint-reconciler-type=none",
		"--allow-privileged=true", "--kubelet-preferred-address-types=ExternalIP,InternalIP", // no server resolves names of nodes
	}
	if !o.Pods { // Pods would be refused without a controller that publishes the authority
		arguments = append(arguments, "--disable-admission-plugins=ServiceAccount")
	}
	if o.Audit {
		arguments = append(arguments, c.audit()...)
	}
	c.server = newProcess(t, "kube-apiserver", o.Wrap, append([]string{binary}, arguments...)...)
	c.StartServer()
	return c
}

// advertised returns an address that the server may advertise: never loopback.
func advertised(addr string) string {
	if ip := net.ParseIP(addr); ip != nil && !ip.IsLoopback() && !ip.IsUnspecified() {
		return addr
	}
	return "192.0.2.1"
}

func find(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("etcd"); err != nil {
		t.Skip("needs etcd: apt-get install etcd-server")
	}
	binary := os.Getenv("POINTSMAN_APISERVER")
	if binary == "" {
		binary = filepath.Join(root(t), "bin", "peers", "kube-apiserver")
	}
	if _, err := os.Stat(binary); err != nil {
		t.Skip("needs a kube-apiserver: make peers builds one, in some minutes")
	}
	return binary
}

// root returns the folder of the test's module.
func root(t testing.TB) string {
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
	c.etcd = "http://127.0.0.1:" + free(c.t)
	peers := "http://127.0.0.1:" + free(c.t)
	etcd := newProcess(c.t, "etcd", c.options.Wrap, "etcd",
		"--data-dir="+c.file("etcd"), "--log-level=error", "--logger=zap",
		"--listen-client-urls="+c.etcd, "--advertise-client-urls="+c.etcd,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=default="+peers)
	etcd.start()
	c.t.Cleanup(etcd.stop)
}

// writeSecrets writes the users' tokens and the keys.
func (c *Cluster) writeSecrets() {
	c.t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		c.t.Fatal(err)
	}
	tokens := fmt.Sprintf("%s,%s,%s,system:masters\n", Token(Admin), Admin, Admin)
	for _, user := range c.options.Users {
		tokens += fmt.Sprintf("%s,%s,%s\n", Token(user), user, user)
	}
	c.write("sa.key", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	c.write("tokens.csv", []byte(tokens))
}

func (c *Cluster) write(name string, data []byte) {
	c.t.Helper()
	if err := os.WriteFile(c.file(name), data, 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// Token returns the token of a user. It protects nothing: the cluster is a test's.
func Token(user string) string { return "token-" + user }

// Kubeconfig returns a file with which kubectl, or a pointsman, uses a token. An empty url is the server's own.
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

// StopServer kills the API server; etcd stays.
func (c *Cluster) StopServer() { c.server.stop() }

// StartServer starts the API server, and waits until it is ready. On a busy machine it may exit before that; then it is
// started again, as a kubelet does.
func (c *Cluster) StartServer() {
	c.t.Helper()
	c.server.start()
	c.t.Cleanup(c.server.stop)
	lives := 1
	err := eventually.Try(timeout, func() error {
		switch {
		case c.ready():
			return nil
		case c.server.ended() && lives < 5:
			c.t.Logf("kube-apiserver ended before it was ready; its last words:\n%s", c.server.words())
			c.server.stop()
			c.server.start()
			lives++
		case c.server.ended():
			return eventually.Final(errors.New("it ended"))
		}
		return errors.New("it is not ready")
	})
	if err != nil {
		c.server.stop()
		c.t.Fatalf("kube-apiserver: %v; its last words:\n%s", err, c.server.words())
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
	header := c.ask("/v3/kv/range", `{"key":"AA=="}`)
	_, rest, _ := strings.Cut(header, `"revision":"`)
	revision, _, ok := strings.Cut(rest, `"`)
	if !ok {
		c.t.Fatalf("etcd told no revision: %s", header)
	}
	c.ask("/v3/kv/compaction", `{"revision":"`+revision+`","physical":true}`)
}

func (c *Cluster) ask(path, body string) string {
	c.t.Helper()
	client := &http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Post(c.etcd+path, "application/json", bytes.NewReader([]byte(body)))
	if err != nil {
		c.t.Fatalf("asking etcd: %v", err)
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

// free returns an unused port.
func free(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}
