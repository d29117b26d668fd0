# SPDX-License-Identifier: Apache-2.0
#
# Every target does all the set-up it needs. `make help` lists them.

GO      ?= go
PLUGINS := $(notdir $(patsubst %/main.go,%,$(wildcard plugins/*/pointsman-dataplane-*/main.go)))
# A clone is stamped with its commit. Where git may not read it, Go would not build.
VCS     := -buildvcs=$(shell git rev-parse -q --verify HEAD >/dev/null 2>&1 && echo auto || echo false)
# Packages whose kernel tests need root: each makes network namespaces of its own, so
# two go side by side. Those that measure what traffic sees go alone, and last.
KERNEL  := $(shell grep -rlE '^func TestKernel' --include='*_test.go' --exclude-dir=examples . 2>/dev/null | xargs -r -n1 dirname | sort -u)
# Where a C compiler and its headers are, and Go has it for this machine, tests run under the
# race detector, also the kernel tests of these packages. Those of whole dataplanes and of the
# whole system measure what traffic sees within a time, which the detector makes too long.
RACED   := $(filter ./plugins/internal/% ./plugins/userspace/relay ./sdk/%,$(KERNEL))
RACE     = $(shell $(GO) list -race std >/dev/null 2>&1 && echo '#include <pthread.h>' | $$($(GO) env CC) -E - >/dev/null 2>&1 && echo -race)
# Else each program that the detector is in waits a second for reports before it ends.
export GORACE ?= atexit_sleep_ms=0
BENCHES := $(shell grep -rlE '^func Benchmark' --include='*_test.go' --exclude-dir=examples . 2>/dev/null | xargs -r -n1 dirname | sort -u)
# Packages that touch neither processes nor the kernel, and test in no time.
PURE    := ./sdk ./host/pace ./host/phrase ./host/reach ./host/report ./host/swap ./host/track ./plugins/internal/tree

.DEFAULT_GOAL := help
.PHONY: help build man check test test-kernel test-dataplanes test-swap test-ipvs test-packages test-systemd test-images test-chart e2e peers release images bench soak demo proto staticcheck actionlint verify

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build pointsman and every plugin into bin/
	@mkdir -p bin
	$(GO) build -trimpath $(VCS) -o bin/pointsman ./host/pointsman
	@for p in $(PLUGINS); do echo "$(GO) build -trimpath $(VCS) -o bin/$$p ./plugins/$${p#pointsman-dataplane-}/$$p"; \
		$(GO) build -trimpath $(VCS) -o bin/$$p ./plugins/$${p#pointsman-dataplane-}/$$p || exit 1; done

man: build ## write the manual pages of all verbs into bin/man1/, from what their --help says
	bin/pointsman man bin/man1

check: bin/staticcheck ## what to run at each save: format, vet, staticcheck, walls, and the tests of pure packages
	@unformatted="$$(gofmt -l .)"; if [ -n "$$unformatted" ]; then echo "gofmt these: $$unformatted"; exit 1; fi
	$(GO) vet ./...
	bin/staticcheck ./...
	$(GO) test -run '^Test(Walls|KeptInOneRoom)$$' ./test
	$(GO) test $(PURE)

# Most of them wait for processes, so there is always one more than processors; those that
# wait longest are first. ./test runs beside them, and not under the race detector: it runs
# programs that are built without, and is the slower half.
test: ## run every test that needs neither root nor a cluster
	@mkdir -p bin
	@$(GO) test -parallel 4 -timeout 20m -skip "^TestKernel" ./test >bin/test.txt 2>&1 & beside=$$!; status=0; \
		$(GO) test $(RACE) -p $$(getconf _NPROCESSORS_ONLN) -parallel 4 -timeout 20m -skip "^TestKernel" \
			./host/supervise $$($(GO) list ./... | grep -v '/pointsman/test$$') || status=1; \
		wait $$beside || status=1; cat bin/test.txt; exit $$status
	cd examples/haproxy && $(GO) vet . && $(GO) test -skip "^TestKernel" .

test-kernel: test-dataplanes test-swap ## run the tests that write to a real kernel, in namespaces of their own (root)

test-dataplanes: ## of these, all but those of whole swaps
	@if [ "$$(id -u)" != 0 ]; then echo "make $@ needs root: it makes network namespaces; try: sudo make $@"; exit 1; fi
	$(GO) test $(RACE) -p 2 -count=1 -timeout 20m -run '^TestKernel' $(RACED)
	$(GO) test -p 2 -count=1 -timeout 35m -run '^TestKernel' $(filter-out ./test/swap ./test/breakage $(RACED),$(KERNEL))

test-swap: ## of these, swaps, restarts and faults of the whole system, and what traffic sees of them
	@if [ "$$(id -u)" != 0 ]; then echo "make $@ needs root: it makes network namespaces; try: sudo make $@"; exit 1; fi
	$(GO) test -count=1 -timeout 20m -run '^TestKernel' ./test/breakage
	GO="$(GO)" test/swap/suite
	cd examples/haproxy && $(GO) test -count=1 -timeout 20m -run '^TestKernel' .

test-ipvs: ## run the ipvs tests under a kernel that has IPVS
	@GO="$(GO)" test/uml/suite

.PHONY: uml-modules
uml-modules: ## build what user-mode Linux lacks of nf_tables (two minutes, once)
	test/uml/modules

.PHONY: test-nftables-ipvs
test-nftables-ipvs: uml-modules ## run nftables beside IPVS and with SCTP, on Linux 6.1: user-mode Linux with modules that are built first
	@GO="$(GO)" UML_MODULES=$(CURDIR)/bin/uml-modules IPVS_TESTS="$${IPVS_TESTS:-^TestKernelNftables}" test/uml/suite

test-chart: peers bin/helm ## render the chart, and hold it against golden text and the manifests of configs/
	$(GO) test -count=1 ./test/chart

.PHONY: test-windows
test-windows: ## run the programs for Windows under wine
	@[ -e /usr/lib/wine/wine64 ] && command -v x86_64-w64-mingw32-gcc >/dev/null || { echo "make $@ needs wine and a C compiler for Windows; on Debian: apt-get install wine64 gcc-mingw-w64-x86-64"; exit 1; }
	POINTSMAN_WINE=1 $(GO) test -v -count=1 -timeout 20m ./test/windows

e2e: peers bin/helm ## run the whole system against a real API server, in namespaces of its own (root)
	@if [ "$$(id -u)" != 0 ]; then echo "make e2e needs root: it makes network namespaces; try: sudo make e2e"; exit 1; fi
	@for p in etcd iptables conntrack; do command -v $$p >/dev/null || { echo "make e2e needs $$p; on Debian: apt-get install etcd-server iptables conntrack"; exit 1; }; done
	POINTSMAN_E2E=1 $(GO) test -p 1 -count=1 -timeout 30m ./test/cluster ./test/e2e ./test/beside

peers: ## build Kubernetes' own kube-apiserver, controllers, kubectl and kube-proxy, to test against (some minutes, once)
	@mkdir -p bin/peers
	cd test/peers && $(GO) build -trimpath -o ../../bin/peers/kube-apiserver .
	@for p in kube-controller-manager kubectl kube-proxy; do ln -sf kube-apiserver bin/peers/$$p; done

# What a real node runs, of modules of their own. They take minutes to build, once.
.PHONY: nodes
nodes: ## build Kubernetes' own kubelet and containerd, to run images under (some minutes, once)
	@mkdir -p bin/nodes
	cd test/peers && $(GO) build -trimpath -o ../../bin/nodes/ ./kubelet
	cd test/nodes && $(GO) build -trimpath -tags no_btrfs,no_devmapper,no_zfs,no_aufs -o ../../bin/nodes/ \
		github.com/containerd/containerd/v2/cmd/containerd github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2

# It is of a module of its own, for what it brings in. It takes minutes to build, once.
bin/helm: test/helm/go.mod
	@mkdir -p bin
	cd test/helm && $(GO) build -trimpath -o ../../bin/ helm.sh/helm/v4/cmd/helm

# What makes a release, and what lists what is in it, by exact versions. Each takes two minutes to build.
bin/release/goreleaser:
	GOBIN=$(CURDIR)/bin/release GOFLAGS= $(GO) install -trimpath github.com/goreleaser/goreleaser/v2@v2.16.0
bin/release/syft:
	GOBIN=$(CURDIR)/bin/release GOFLAGS= $(GO) install -trimpath github.com/anchore/syft/cmd/syft@v1.33.0

release: bin/release/goreleaser bin/release/syft ## build archives, packages, checksums and SBOMs of the last commit into bin/dist/
	configs/packages/release bin/dist
	@{ $(COMMIT); } >bin/release/commit

# What is in bin/dist/ is of the last commit, or made anew.
COMMIT := git rev-parse -q --verify HEAD 2>/dev/null || date
.PHONY: released
released:
	@[ -e bin/dist/checksums.txt ] && [ "$$(cat bin/release/commit 2>&1)" = "$$($(COMMIT))" ] || $(MAKE) release

# The Debian that packages are installed in: tests have no network to fetch it by.
bin/release/debian.tar:
	@command -v mmdebstrap >/dev/null || { echo "make test-packages needs mmdebstrap and rpm; on Debian: apt-get install mmdebstrap rpm"; exit 1; }
	mmdebstrap --quiet --aptopt='Acquire::Retries "5"' --variant=minbase --include=systemd,iptables,ipset,kmod,nftables bookworm $@

test-packages: released bin/release/debian.tar ## install, upgrade, remove and purge what make release made, under traffic (root)
	@if [ "$$(id -u)" != 0 ]; then echo "make test-packages needs root: it makes network namespaces; try: sudo make test-packages"; exit 1; fi
	POINTSMAN_RELEASE=$(CURDIR)/bin/dist $(GO) test -count=1 -timeout 20m -skip '^TestKernelSystemd$$' ./test/packages

test-systemd: released bin/release/debian.tar ## the same under systemd, which boots in namespaces of its own (root)
	@if [ "$$(id -u)" != 0 ]; then echo "make test-systemd needs root: it makes namespaces; try: sudo make test-systemd"; exit 1; fi
	POINTSMAN_RELEASE=$(CURDIR)/bin/dist $(GO) test -count=1 -timeout 20m -run '^TestKernelSystemd$$' ./test/packages

images: released ## build an image of the host, of each dataplane and of all together into bin/images/, for amd64 and arm64
	configs/container/images bin/dist bin/images

test-images: ## run what make images made, as pods by runc and under traffic, and make two of them again (root)
	@if [ "$$(id -u)" != 0 ]; then echo "make test-images needs root: it makes network namespaces and containers; try: sudo make test-images"; exit 1; fi
	@(cd bin/dist && sha256sum --check --status ../images/release.sha256) 2>/dev/null || $(MAKE) images # of this release
	POINTSMAN_IMAGES=$(CURDIR)/bin/images $(GO) test -count=1 -timeout 20m -skip '^TestKernelKubelet$$' ./test/images

.PHONY: test-kubelet
# KUBELET_LIVES is a pattern: of a mode and a form, such as "nftables: one container", those of other names are left out.
test-kubelet: peers nodes ## run what make images made as pods of a real kubelet, under traffic (root)
	@if [ "$$(id -u)" != 0 ]; then echo "make test-kubelet needs root: it makes network namespaces and containers; try: sudo make test-kubelet"; exit 1; fi
	@(cd bin/dist && sha256sum --check --status ../images/release.sha256) 2>/dev/null || $(MAKE) images # of this release
	POINTSMAN_IMAGES=$(CURDIR)/bin/images $(GO) test -v -count=1 -timeout 40m -run '^TestKernelKubelet$$' ./test/images

bench: ## measure what docs/performance.md states, as ratios in one run
	@mkdir -p bin
	@$(GO) test -run '^$$' -bench . -benchmem -timeout 30m $(BENCHES) 2>&1 | tee bin/bench.txt
	@if [ -e /proc/sys/net/ipv4/vs ]; then :; elif command -v linux.uml >/dev/null; then \
		GO="$(GO)" IPVS_GUESTS=1 IPVS_TESTS='^$$' IPVS_FLAGS='-test.bench .' test/uml/suite 2>&1 | tee -a bin/bench.txt; \
	else echo "ipvs is not measured: this kernel has none, and there is no user-mode Linux; on Debian: apt-get install user-mode-linux"; fi
	@! grep -q '^FAIL' bin/bench.txt
	@echo; echo "ratios, and times that have goals:"
	@awk '/^Benchmark/ { for (i = 3; i < NF; i += 2) if ($$(i+1) ~ /^x-|≤/) printf "  %8s %-16s %s\n", $$i, $$(i+1), $$1 }' bin/bench.txt

soak: peers ## run faults and swaps for hours
	@if [ "$$(id -u)" != 0 ]; then echo "make soak needs root: it makes network namespaces; try: sudo make soak"; exit 1; fi
	POINTSMAN_SOAK=100 $(GO) test -p 1 -count=1 -timeout 12h -v -run '^TestKernel' ./plugins/iptables ./test/swap ./test/privileges
	POINTSMAN_SOAK=20 $(GO) test -count=1 -timeout 12h -v -run '^TestKernel' ./test/breakage # POINTSMAN_SEED repeats one
	POINTSMAN_SOAK=100 $(GO) test -count=1 -timeout 12h -v -run 'TestMalice' ./test
	POINTSMAN_SOAK=100 POINTSMAN_E2E=1 $(GO) test -count=1 -timeout 12h -v ./test/beside
	GO="$(GO)" POINTSMAN_SOAK=100 UML_TIMEOUT=40000 IPVS_TESTS='^TestKernelIPVS(Swaps|Beside|Demo|Breakage)' IPVS_FLAGS='-test.timeout=11h' test/uml/suite

demo: build ## show it at work on this machine, in under a minute, without root
	bin/pointsman demo

proto: ## generate the wire's Go code again (needs protoc)
	sdk/wire/generate.sh

# It is of a module of its own, so that nothing of it is in what a plugin imports.
bin/staticcheck: test/tools/go.mod
	@mkdir -p bin
	cd test/tools && $(GO) build -o ../../bin/ honnef.co/go/tools/cmd/staticcheck

bin/actionlint: test/tools/go.mod
	@mkdir -p bin
	cd test/tools && $(GO) build -o ../../bin/ github.com/rhysd/actionlint/cmd/actionlint

actionlint: bin/actionlint ## check the workflows of the forge, which run nowhere but there
	bin/actionlint -shellcheck= -pyflakes= .github/workflows/*.yml

staticcheck: bin/staticcheck ## look for mistakes that the compiler does not see
	bin/staticcheck ./...

verify: ## check format, vet, staticcheck, workflows, other systems' builds, and that nothing generated is stale
	@unformatted="$$(gofmt -l .)"; if [ -n "$$unformatted" ]; then echo "gofmt these: $$unformatted"; exit 1; fi
	$(GO) vet ./...
	@$(MAKE) --no-print-directory staticcheck actionlint
	GOOS=darwin $(GO) build $(VCS) ./...
	GOOS=windows $(GO) build $(VCS) ./...
	$(GO) mod verify
	$(GO) mod tidy -diff
	cd examples/haproxy && $(GO) mod tidy -diff
	@if command -v protoc >/dev/null; then sdk/wire/generate.sh --check; \
	else echo "verify: without protoc nobody knows whether the wire's Go code is stale; try: apt-get install protobuf-compiler"; fi
