#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Generates dataplanepb from the protos beside this script; with --check it only
# says whether that would change anything. Needs protoc (Debian:
# protobuf-compiler); the two Go generators are built here, at the versions below,
# and thrown away.
set -eu
cd "$(dirname "$0")"
command -v protoc >/dev/null || { echo "generate.sh needs protoc; try: apt-get install protobuf-compiler" >&2; exit 1; }
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
out=dataplanepb
[ "${1-}" = --check ] && out=$tools/dataplanepb && mkdir "$out"
go build -o "$tools/protoc-gen-go" google.golang.org/protobuf/cmd/protoc-gen-go
GOBIN=$tools go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
protoc --plugin="$tools/protoc-gen-go" --plugin="$tools/protoc-gen-go-grpc" \
	--go_out="$out" --go_opt=paths=source_relative \
	--go-grpc_out="$out" --go-grpc_opt=paths=source_relative \
	hello.proto dataplane.proto
[ "$out" = dataplanepb ] && exit
# Which protoc it was stands in a comment, and does not matter.
diff -r -I '^//.*protoc' dataplanepb "$out" || { echo "the wire's Go code is stale; try: make proto" >&2; exit 1; }
