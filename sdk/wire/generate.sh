#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Generates dataplanepb from the protos beside this script. Needs protoc (Debian:
# protobuf-compiler); the two Go generators are built here, at the versions below,
# and thrown away.
set -eu
cd "$(dirname "$0")"
command -v protoc >/dev/null || { echo "generate.sh needs protoc; try: apt-get install protobuf-compiler" >&2; exit 1; }
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
go build -o "$tools/protoc-gen-go" google.golang.org/protobuf/cmd/protoc-gen-go
GOBIN=$tools go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
protoc --plugin="$tools/protoc-gen-go" --plugin="$tools/protoc-gen-go-grpc" \
	--go_out=dataplanepb --go_opt=paths=source_relative \
	--go-grpc_out=dataplanepb --go-grpc_opt=paths=source_relative \
	hello.proto dataplane.proto
