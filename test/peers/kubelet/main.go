// SPDX-License-Identifier: Apache-2.0

// Command kubelet is Kubernetes' own kubelet, to run images under as a cluster does. It is no part of
// the program beside it, because only that test needs it and it adds minutes to the build.
package main

import (
	"context"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // what it publishes
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() { os.Exit(cli.Run(kubelet.NewKubeletCommand(context.Background()))) }
