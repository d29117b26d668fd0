// SPDX-License-Identifier: Apache-2.0

// Package images checks what `make images` built: an archive for each image with one image for each
// processor, labels, a list of contents, and the same bytes when it is built again. Then a real kubelet runs
// the images as pods by the chart, in a network namespace of their own, while callers call the Service all
// the time. Start reading at kubelet_linux_test.go.
package images
