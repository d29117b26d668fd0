// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/base64"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes/scheme"
)

// etcdBatch is the number of puts in a transaction; etcd allows 128.
const etcdBatch = 100

// Load writes Services, EndpointSlices and Nodes to etcd. Since the API server does not check them, ten thousand take
// seconds, not minutes.
func (c *Cluster) Load(objects ...metav1.Object) {
	c.t.Helper()
	encoder := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	var puts []string
	for _, o := range objects {
		var raw strings.Builder
		key := c.complete(o)
		if err := encoder.Encode(o.(runtime.Object), &raw); err != nil {
			c.t.Fatalf("encoding %s: %v", key, err)
		}
		puts = append(puts, fmt.Sprintf(`{"requestPut":{"key":%q,"value":%q}}`, b64(key), b64(raw.String())))
		if len(puts) == etcdBatch {
			c.put(puts)
			puts = puts[:0]
		}
	}
	c.put(puts)
}

func (c *Cluster) put(puts []string) {
	c.t.Helper()
	if len(puts) > 0 {
		c.postEtcd("/v3/kv/txn", `{"success":[`+strings.Join(puts, ",")+`]}`)
	}
}

// complete sets the fields that the API server would set, and returns the key at which it would store o.
func (c *Cluster) complete(o metav1.Object) string {
	c.t.Helper()
	o.SetUID(types.UID(uuid.NewUUID()))
	o.SetCreationTimestamp(metav1.Now())
	prefix := ""
	switch o := o.(type) {
	case *corev1.Service:
		prefix = "services/specs/" + o.Namespace + "/"
		o.APIVersion, o.Kind = "v1", "Service"
	case *discoveryv1.EndpointSlice:
		prefix = "endpointslices/" + o.Namespace + "/"
		o.APIVersion, o.Kind = "discovery.k8s.io/v1", "EndpointSlice"
	case *corev1.Node:
		prefix = "minions/"
		o.APIVersion, o.Kind = "v1", "Node"
	default:
		c.t.Fatalf("Load does not support a %T", o)
	}
	return "/registry/" + prefix + o.GetName()
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
