// SPDX-License-Identifier: Apache-2.0

/*
Package chart renders the chart in charts/pointsman with helm, and holds it against what it should
be: golden text for each way of use, the manifests of configs/, settings that the host takes, and values
that are refused. `make test-chart` builds helm and runs it; with a real API server the chart is in
test/e2e.
*/
package chart
