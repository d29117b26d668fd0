#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Generates dataplanepb from the .proto files in this folder. With --check it only
# fails if dataplanepb is not up to date. It needs protoc (Debian:
# protobuf-compiler). It builds the two Go generators in a temporary folder.
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
# A comment contains the version of protoc, which does not matter.
diff -r -I '^//.*protoc' dataplanepb "$out" || { echo "the wire's Go code is stale; try: make proto" >&2; exit 1; }
