// SPDX-License-Identifier: Apache-2.0

// Command kubelet is Kubernetes' own kubelet, which runs images as in a cluster. It is not part of the program in the
// folder above because only one test needs it, and building it takes minutes.
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
