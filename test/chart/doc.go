// SPDX-License-Identifier: Apache-2.0

/*
Package chart renders the chart in charts/pointsman with helm, and compares the result with golden
text for each way of use and with the manifests of configs/. It checks that an API server and the host
accept what is rendered, and that values without meaning are refused. It must not need a network.
`make test-chart` builds helm and runs it. Start reading at chart_linux_test.go.
*/
package chart
