// SPDX-License-Identifier: Apache-2.0

package sdktest_test

import (
	"fmt"

	"github.com/pointsman/pointsman/sdk/sdktest"
)

// A scenario is text: Services, and where packets to them may go.
func ExampleParse() {
	scenario, err := sdktest.Parse("web.txtar", []byte(`A node port under the Local policy keeps to this node's endpoints.
-- services --
ns1/web:http tcp
  cluster-ip 172.30.0.41:80
  node-port  30080 local
  endpoint   10.180.0.1:8080 here
  endpoint   10.180.1.1:8080
-- packets --
10.180.0.9 > 172.30.0.41:80 = 10.180.0.1:8080 10.180.1.1:8080
192.0.2.7  > node:30080     = 10.180.0.1:8080
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, packet := range scenario.Packets {
		fmt.Println(packet.From.Addr, "to", packet.To, "is for the", packet.Frontend.Kind, "and goes to", packet.Want)
	}
	// Output:
	// 10.180.0.9 to 172.30.0.41:80 is for the cluster-ip and goes to 10.180.0.1:8080 10.180.1.1:8080
	// 192.0.2.7 to 192.0.2.10:30080 is for the node-port and goes to 10.180.0.1:8080
}
