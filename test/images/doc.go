// SPDX-License-Identifier: Apache-2.0

// Package images holds what `make images` made to what a registry and a node need of it: an
// archive for each image, with one for each processor in it, labels, and a list of what it has;
// and the same bytes when they are made again. Then it runs them by runc, as a kubelet would the
// DaemonSets in configs/: with their capabilities, volumes, read-only file systems and probes, in a
// network namespace of their own, and with callers all the time; and as pods of a real kubelet, which
// alone shows what the manifests mean to it.
package images
