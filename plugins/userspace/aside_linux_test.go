// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"errors"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// If the kernel refuses a rule of a Service, the Service is served as before, and the other Services of the update are served
// as specified. When the kernel accepts the rule, the Service is, too.
func TestKernelRefusedLine(t *testing.T) {
	onNode(t, func(n node) {
		n.serve(svc("barred", "cluster-ip 172.30.0.41:80", podHere+":8080"), svc("web", "cluster-ip 172.30.0.42:80", podHere+":8080"))
		undo := n.kernel.refuse("-d 172.30.0.51.32 ")
		moved := svc("barred", "cluster-ip 172.30.0.51:80", podHere+":8080")
		result := n.offer(sdk.Update{Set: []sdk.Service{moved, svc("web", "cluster-ip 172.30.0.52:80", podHere+":8080")}})
		if len(result.Failed) != 1 || result.Failed[0].Name != moved.Name || !errors.As(result.Failed[0].Err, new(*iptables.LineError)) {
			n.Fatalf("failed: %v; want %s alone", result.Failed, moved.Name)
		}
		n.finds("tcp", "172.30.0.41:80", podHere+":8080")
		n.finds("tcp", "172.30.0.52:80", podHere+":8080")
		undo()
		n.set(moved)
		n.finds("tcp", "172.30.0.51:80", podHere+":8080")
		for _, at := range []string{"172.30.0.41:80", "172.30.0.42:80"} {
			if got, err := n.call("tcp", at); err == nil {
				n.Errorf("%s still answers at the old address %s", got, at)
			}
		}
	})
}
