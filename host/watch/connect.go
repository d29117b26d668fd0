// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pointsman/pointsman/host/bounded"
)

// A Connection says how the API server is reached.
type Connection struct {
	Kubeconfig string  // a file; empty: the pod's own service account
	QPS        float64 // requests each second,
	Burst      int     // and at once
	UserAgent  string

	Observe func(Request) // called for every request
}

// A Request is one that was made of the API server.
type Request struct {
	Method, Host string
	Code         string        // of the answer, or "<error>"
	Took         time.Duration // until the answer began
}

// Connect returns a client of the API server. It is not an error that the server does
// not answer yet.
func Connect(c Connection) (kubernetes.Interface, error) {
	config, err := load(c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = float32(c.QPS), c.Burst
	config.UserAgent = c.UserAgent
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.WarningHandler = rest.NoWarnings{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return observer{next, c.Observe} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	return client, nil
}

// maxKubeconfig is more than any kubeconfig needs.
const maxKubeconfig = 16 << 20

func load(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		if _, err := bounded.ReadFileWithin(kubeconfig, maxKubeconfig, 5*time.Second); err != nil {
			return nil, fmt.Errorf("reading kubeconfig %s: %w", kubeconfig, err)
		}
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("reading kubeconfig %s: %w", kubeconfig, err)
		}
		return config, nil
	}
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, errors.New("source.kubernetes: there is no pod's service account here: set source.kubernetes.kubeconfig, or source.files to serve from manifests")
	}
	if err != nil {
		return nil, fmt.Errorf("source.kubernetes: reading the pod's service account: %w", err)
	}
	return config, nil
}

// An observer calls tell for every request that goes through it.
type observer struct {
	next http.RoundTripper
	tell func(Request)
}

func (o observer) RoundTrip(r *http.Request) (*http.Response, error) {
	start := time.Now()
	answer, err := o.next.RoundTrip(r)
	code := "<error>"
	if err == nil {
		code = strconv.Itoa(answer.StatusCode)
	}
	o.tell(Request{Method: r.Method, Host: r.URL.Host, Code: code, Took: time.Since(start)})
	return answer, err
}
