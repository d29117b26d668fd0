// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// Client returns a client of the API server as Admin, without a rate limit.
func (c *Cluster) Client() kubernetes.Interface {
	c.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig(Token(Admin), ""))
	if err != nil {
		c.t.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		c.t.Fatal(err)
	}
	return client
}

// AddNode creates the i-th Node as its kubelet and the controllers would: in its own zone, with addresses and pod CIDRs.
func AddNode(t testing.TB, kube kubernetes.Interface, name string, i int, addrs ...netip.Addr) {
	t.Helper()
	zone := "zone-" + string(rune('a'+i))
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone, corev1.LabelHostname: name, corev1.LabelOSStable: "linux"}},
		Spec:       corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.244.%d.0/24", i+1), fmt.Sprintf("fd00:10:244:%d::/64", i+1)}},
	}
	n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	n, err := kube.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	if _, err := kube.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Forward forwards connections from l to the API server. The returned function closes l and all connections.
func (c *Cluster) Forward(l net.Listener) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { // ends when l is closed
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { // ends when one of the two connections ends
				defer from.Close()
				to, err := net.DialTimeout("tcp", c.Addr(), timeout)
				if err != nil {
					return
				}
				defer to.Close()
				defer context.AfterFunc(ctx, func() { _, _ = from.Close(), to.Close() })()
				ended := make(chan struct{}, 2)
				for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
					go func() { // ends when one of the two connections is closed
						_, _ = io.Copy(pair[0], pair[1])
						ended <- struct{}{}
					}()
				}
				<-ended
			})
		}
	})
	return func() {
		cancel()
		_ = l.Close()
		all.Wait()
	}
}
