// SPDX-License-Identifier: Apache-2.0

// Package images checks the archives that `make images` builds: one image for each architecture, labels, SBOMs, and the
// same bytes when an image is built again. Then a real kubelet runs the images as the pods of the chart, in a separate
// network namespace, while callers call a Service. Start reading at kubelet_linux_test.go.
package images
