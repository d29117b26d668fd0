# SPDX-License-Identifier: Apache-2.0
#
# Every target does its own set-up. `make help` lists the targets.

GO      ?= go
# The command that runs tests, with the flags of go test. CI sets it to .ci/gotest, which reruns failed tests.
GOTEST  ?= $(GO) test
PLUGINS := $(notdir $(patsubst %/main.go,%,$(wildcard plugins/*/pointsman-dataplane-*/main.go)))
# Binaries contain the commit of the clone, except if git cannot read the clone, since go build would then fail.
VCS     := -buildvcs=$(shell git rev-parse -q --verify HEAD >/dev/null 2>&1 && echo auto || echo false)
# A user whose home cannot be written to, such as nobody, has Go's caches in bin/.
cache    = $(shell d="$$($(GO) env $(1))"; case "$$d" in (/*) mkdir -p "$$d" 2>/dev/null && [ -$(2) "$$d" ] && echo "$$d";; esac)
ifeq ($(call cache,GOCACHE,w),)
export GOCACHE := $(CURDIR)/bin/cache/build
endif
ifeq ($(call cache,GOMODCACHE,r),)
export GOMODCACHE := $(CURDIR)/bin/cache/mod
endif
# Packages with kernel tests, which need root. Each creates its own network namespaces, so two run in parallel.
# Packages that measure effects on traffic run alone, and last.
KERNEL  := $(shell grep -rlE '^func TestKernel' --include='*_test.go' . 2>/dev/null | xargs -r -n1 dirname | sort -u)
# Tests run with the race detector if a C compiler with headers is installed and Go supports the detector on this
# machine, also the kernel tests of these packages. Kernel tests of whole dataplanes and of the whole system run
# without, because they measure effects on traffic within a time, which the detector makes too long.
RACED   := $(filter ./plugins/internal/% ./plugins/userspace/relay ./sdk/%,$(KERNEL))
RACE     = $(shell $(GO) list -race std >/dev/null 2>&1 && echo '#include <pthread.h>' | $$($(GO) env CC) -E - >/dev/null 2>&1 && echo -race)
# By default, each program with the detector waits a second for reports before it exits.
export GORACE ?= atexit_sleep_ms=0
BENCHES := $(shell grep -rlE '^func Benchmark' --include='*_test.go' . 2>/dev/null | xargs -r -n1 dirname | sort -u)
# Packages that use neither processes nor the kernel, whose tests take seconds.
PURE    := ./sdk ./host/feed ./host/phrase ./host/plane ./host/reach ./host/report ./host/track ./plugins/internal/tree

.DEFAULT_GOAL := help
.PHONY: help build man check test test-kernel test-dataplanes test-swap test-ipvs test-packages test-systemd test-images test-chart e2e peers release images bench soak demo proto staticcheck actionlint verify

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build pointsman, every plugin, pointsman-conformance and kubectl-pointsman into bin/
	@mkdir -p bin
	$(GO) build -trimpath $(VCS) -o bin/pointsman ./host/pointsman
	$(GO) build -trimpath $(VCS) -o bin/kubectl-pointsman ./host/kubectl-pointsman
	$(GO) build -trimpath $(VCS) -o bin/pointsman-conformance ./sdk/sdktest/pointsman-conformance
	@for p in $(PLUGINS); do echo "$(GO) build -trimpath $(VCS) -o bin/$$p ./plugins/$${p#pointsman-dataplane-}/$$p"; \
		$(GO) build -trimpath $(VCS) -o bin/$$p ./plugins/$${p#pointsman-dataplane-}/$$p || exit 1; done

man: ## write the manual pages of all verbs into bin/man1/, from their --help
	$(GO) build -trimpath $(VCS) -tags man -o bin/man ./host/pointsman
	bin/man bin/man1

check: bin/staticcheck ## run at each save: format, vet, staticcheck, rules of imports, and the tests of pure packages
	@unformatted="$$(gofmt -l .)"; if [ -n "$$unformatted" ]; then echo "gofmt these: $$unformatted"; exit 1; fi
	$(GO) vet ./... && $(GO) vet -tags man ./host/pointsman
	bin/staticcheck ./...
	$(GO) test -run '^Test(Walls|KeptInOneRoom)$$' ./test
	$(GO) test $(PURE)

# ./test starts many processes and waits for them, so it runs beside the others, and without the race
# detector: the programs that it runs are built without the detector.
test: ## run every test that needs neither root nor a cluster (ten minutes on two cores, half of them to compile)
	@mkdir -p bin
	@echo "make test: compiling; the first result of a clean build comes after some minutes"
	@$(GOTEST) -parallel 4 -timeout 30m -skip "^TestKernel" ./test >bin/test.txt 2>&1 & beside=$$!; status=0; \
		$(GOTEST) $(RACE) -p $$(getconf _NPROCESSORS_ONLN) -parallel 4 -timeout 30m -skip "^TestKernel" \
			$$($(GO) list ./... | grep -v '/pointsman/test$$') || status=1; \
		echo "make test: waiting for ./test, which runs the programs"; \
		wait $$beside || status=1; cat bin/test.txt; exit $$status

# needs_root fails with an explanation unless the user is root.
needs_root = @if [ "$$(id -u)" != 0 ]; then echo "make $@ needs root: it makes network namespaces; try: sudo make $@"; exit 1; fi

# Root may do more than a plain user: the tests of make test that skip with "needs root".
.PHONY: test-root
test-root: ## run the tests that TESTS names (A|B), as root
	$(GOTEST) -count=1 -parallel 4 -timeout 30m -run '^($(TESTS))$$' \
		$$(grep -rlE '^func ($(TESTS))\(' --include='*_test.go' --exclude-dir=peers . | xargs -r -n1 dirname | sort -u)

# CI runs the next three targets for each change. The targets after them run all kernel tests.
.PHONY: test-modes
test-modes: ## run each mode once in the kernel: conformance, and repairs of rules that other programs change (root)
	$(needs_root)
	$(GOTEST) -p 3 -count=1 -timeout 30m -run '^TestKernel(Conforms|RestoresWhatOthersRemove|IgnoresForeignRules|Repairs|OwnsBetweenSessions|NamesARefusedService|Restart|ForeignRulesLeadToOurs)$$/^(nft|auto|never)$$' \
		./plugins/iptables ./plugins/nftables ./plugins/userspace

.PHONY: test-swaps
test-swaps: ## run swaps under load, kill a plugin, and kill the host in each step of a swap (root)
	$(needs_root)
	$(GOTEST) -count=1 -timeout 20m -run '^TestKernel(ThereAndBack|PluginKilled)$$' ./test/swap
	$(GOTEST) -count=1 -timeout 20m -run '^TestKernelFaults$$/.*/.*/^host$$' ./test/swap

.PHONY: test-system
test-system: peers ## run nftables and iptables with a real API server (root)
	$(needs_root)
	POINTSMAN_E2E=1 POINTSMAN_BESIDE=iptables-nft,nftables $(GOTEST) -p 1 -count=1 -timeout 30m -run '^Test(Stories|Interfaces|Manifests)$$' ./test/beside

test-kernel: test-iptables test-dataplanes test-swap ## run all tests that write to the kernel, in their own namespaces (root)

.PHONY: test-iptables
test-iptables: ## run the kernel tests of the iptables dataplane, with both backends (root)
	$(needs_root)
	$(GOTEST) -p 2 -count=1 -timeout 35m -run '^TestKernel' ./plugins/iptables ./plugins/internal/iptables

test-dataplanes: ## run the kernel tests of the other dataplanes and of their shared packages (root)
	$(needs_root)
	$(GOTEST) $(RACE) -p 2 -count=1 -timeout 20m -run '^TestKernel' $(RACED)
	$(GOTEST) -p 2 -count=1 -timeout 35m -run '^TestKernel' $(filter-out ./test/swap ./plugins/iptables ./plugins/internal/iptables $(RACED),$(KERNEL))

test-swap: ## run the kernel tests of swaps, restarts and faults of the whole system, under traffic (root)
	$(needs_root)
	$(GOTEST) -count=1 -timeout 40m -run '$(or $(SWAP_TESTS),^TestKernel)' $(if $(SWAP_SKIP),-skip '$(SWAP_SKIP)') ./test/swap

test-ipvs: ## run the ipvs tests under a kernel that has IPVS
	@GO="$(GO)" test/uml/suite

.PHONY: test-ipvs-stories
test-ipvs-stories: peers ## run the stories of a cluster in mode ipvs, and compare it with kube-proxy, under a kernel that has IPVS
	@GO="$(GO)" IPVS_GUESTS=1 IPVS_TESTS='^Test(Stories|KernelIPVSBeside)$$' test/uml/suite

.PHONY: uml-modules
uml-modules: ## build the nf_tables modules that user-mode Linux lacks (two minutes, once)
	test/uml/modules

.PHONY: test-nftables-ipvs
test-nftables-ipvs: uml-modules ## run nftables beside IPVS and with SCTP, in user-mode Linux 6.1
	@GO="$(GO)" UML_MODULES=$(CURDIR)/bin/uml-modules IPVS_TESTS="$${IPVS_TESTS:-^TestKernelNftables}" test/uml/suite

test-chart: peers bin/helm ## render the chart, compare it with golden files and the manifests of configs/, and apply it to an API server
	$(GOTEST) -count=1 ./test/chart

.PHONY: test-windows
test-windows: ## run the programs for Windows under wine
	@[ -e /usr/lib/wine/wine64 ] && command -v x86_64-w64-mingw32-gcc >/dev/null || { echo "make $@ needs wine and a C compiler for Windows; on Debian: apt-get install wine64 gcc-mingw-w64-x86-64"; exit 1; }
	POINTSMAN_WINE=1 $(GOTEST) -count=1 -timeout 20m ./test/windows

e2e: test-stories test-beside ## run the whole system with a real API server, in its own namespaces (root)

# Each of these needs etcd, iptables and conntrack.
.PHONY: test-stories test-beside
test-stories: peers bin/helm ## run every dataplane that this kernel supports with a real API server (root)
	$(needs_root)
	POINTSMAN_E2E=1 POINTSMAN_BESIDE=iptables-nft,iptables-legacy,nftables,userspace $(GOTEST) -p 1 -count=1 -timeout 30m -skip '^TestKernel' ./test/beside

test-beside: peers ## run the same objects with each dataplane and the real kube-proxy, and compare (root)
	$(needs_root)
	POINTSMAN_E2E=1 $(GOTEST) -p 1 -count=1 -timeout 30m -run '^TestKernel' ./test/beside

# helm reads the API server's version to decide whether it can install a chart.
peers: ## build Kubernetes' own kube-apiserver, controllers, kubectl and kube-proxy, for tests (some minutes, once)
	@mkdir -p bin/peers
	cd test/peers && $(GO) build -trimpath -ldflags "-X k8s.io/component-base/version.gitVersion=$$($(GO) list -m -f '{{.Version}}' k8s.io/kubernetes)" \
		-o ../../bin/peers/kube-apiserver .
	@for p in kube-controller-manager kubectl kube-proxy; do ln -sf kube-apiserver bin/peers/$$p; done

# The programs of a real node, from separate Go modules.
.PHONY: nodes
nodes: ## build Kubernetes' own kubelet and containerd, which run images in tests (some minutes, once)
	@mkdir -p bin/nodes
	cd test/peers && $(GO) build -trimpath -o ../../bin/nodes/ ./kubelet
	cd test/nodes && $(GO) build -trimpath -tags no_btrfs,no_devmapper,no_zfs,no_aufs -o ../../bin/nodes/ \
		github.com/containerd/containerd/v2/cmd/containerd github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2

# helm is in a separate Go module because of its dependencies. It takes minutes to build, once.
bin/helm: test/helm/go.mod
	@mkdir -p bin
	cd test/helm && $(GO) build -trimpath -o ../../bin/ helm.sh/helm/v4/cmd/helm

# The programs that build a release and its SBOMs, by exact versions. Each takes two minutes to build.
bin/release/goreleaser:
	GOBIN=$(CURDIR)/bin/release GOFLAGS= $(GO) install -trimpath github.com/goreleaser/goreleaser/v2@v2.16.0
bin/release/syft:
	GOBIN=$(CURDIR)/bin/release GOFLAGS= $(GO) install -trimpath github.com/anchore/syft/cmd/syft@v1.33.0

.PHONY: release-says
release-says:
	@echo "make release: about 40 minutes on two cores the first time: goreleaser and syft are built (5), one more architecture (2), archives for eight systems, packages and SBOMs (33)"
release: release-says bin/release/goreleaser bin/release/syft ## build archives, packages, checksums and SBOMs of the last commit into bin/dist/
	configs/packages/release bin/dist
	@{ $(COMMIT); } >bin/release/commit

# released runs make release unless bin/dist/ has the release of the last commit.
COMMIT := git rev-parse -q --verify HEAD 2>/dev/null || date
.PHONY: released
released:
	@[ -e bin/dist/checksums.txt ] && [ "$$(cat bin/release/commit 2>&1)" = "$$($(COMMIT))" ] || $(MAKE) release

# A Debian system in which tests install packages. They have no network to download one.
bin/release/debian.tar:
	@command -v mmdebstrap >/dev/null || { echo "make test-packages needs mmdebstrap and rpm; on Debian: apt-get install mmdebstrap rpm"; exit 1; }
	mmdebstrap --quiet --aptopt='Acquire::Retries "5"' --variant=minbase --include=systemd,iptables,ipset,kmod,nftables bookworm $@

test-packages: released bin/release/debian.tar ## install, upgrade, remove and purge the packages of make release, under traffic (root)
	$(needs_root)
	POINTSMAN_RELEASE=$(CURDIR)/bin/dist $(GOTEST) -count=1 -timeout 20m -skip '^TestKernelSystemd$$' ./test/packages

test-systemd: released bin/release/debian.tar ## install these packages under a systemd that boots in its own namespaces (root)
	$(needs_root)
	POINTSMAN_RELEASE=$(CURDIR)/bin/dist $(GOTEST) -count=1 -timeout 20m -run '^TestKernelSystemd$$' ./test/packages

images: released ## build images of the host, of each dataplane and of all together into bin/images/, for each architecture
	configs/container/images bin/dist bin/images

test-images: ## check the images of make images, and rebuild two of them (root)
	$(needs_root)
	@(cd bin/dist && sha256sum --check --status ../images/release.sha256) 2>/dev/null || $(MAKE) images # of this release
	POINTSMAN_IMAGES=$(CURDIR)/bin/images $(GOTEST) -count=1 -timeout 20m -skip '^TestKernelKubelet' ./test/images

.PHONY: test-kubelet
test-kubelet: peers nodes bin/helm ## run the images of make images as pods of a real kubelet, under traffic (root)
	$(needs_root)
	@(cd bin/dist && sha256sum --check --status ../images/release.sha256) 2>/dev/null || $(MAKE) images # of this release
	POINTSMAN_IMAGES=$(CURDIR)/bin/images $(GOTEST) -count=1 -timeout 40m -run '^TestKernelKubelet' ./test/images

bench: ## measure the figures of docs/performance.md, as ratios within one run (two hours, root, after make peers)
	@mkdir -p bin
	@$(GO) test -run '^$$' -bench . -benchmem -timeout 4h $(BENCHES) 2>&1 | tee bin/bench.txt
	@if [ -e /proc/sys/net/ipv4/vs ]; then :; elif command -v linux.uml >/dev/null; then \
		GO="$(GO)" IPVS_GUESTS=1 IPVS_TESTS='^$$' IPVS_FLAGS='-test.bench .' test/uml/suite 2>&1 | tee -a bin/bench.txt; \
	else echo "ipvs is not measured: this kernel has none, and there is no user-mode Linux; on Debian: apt-get install user-mode-linux"; fi
	@! grep -q '^FAIL' bin/bench.txt
	@echo; echo "ratios, and times that have goals:"
	@awk '/^Benchmark/ { for (i = 3; i < NF; i += 2) if ($$(i+1) ~ /^x-|≤/) printf "  %8s %-16s %s\n", $$i, $$(i+1), $$1 }' bin/bench.txt

SOAK ?= 30m
soak: ## swap and kill at random under load, for the time SOAK each with plugins as children and as units, then kill 200 hosts of each
	$(needs_root)
	for apart in '' 1; do POINTSMAN_APART=$$apart POINTSMAN_SOAK_FOR=$(SOAK) $(GO) test -count=1 -timeout 12h -v -run '^TestKernelSoak$$' ./test/swap || exit 1; done
	for apart in '' 1; do POINTSMAN_APART=$$apart POINTSMAN_SOAK=100 $(GO) test -count=1 -timeout 12h -v -run '^TestKernelHostKilledAtRandom$$' ./test/swap || exit 1; done

demo: build ## run a demo on this machine, in under a minute, without root
	$(GO) build -trimpath $(VCS) -o bin/demo ./examples/demo
	bin/demo

proto: ## generate the Go code of the protocol (needs protoc)
	sdk/wire/generate.sh

# staticcheck is in a separate Go module, so that plugins do not depend on its dependencies.
bin/staticcheck: test/tools/go.mod
	@mkdir -p bin
	cd test/tools && $(GO) build -o ../../bin/ honnef.co/go/tools/cmd/staticcheck

bin/actionlint: test/tools/go.mod
	@mkdir -p bin
	cd test/tools && $(GO) build -o ../../bin/ github.com/rhysd/actionlint/cmd/actionlint

actionlint: bin/actionlint ## check the GitHub workflows, which run only on GitHub
	bin/actionlint -shellcheck= -pyflakes= .github/workflows/*.yml

staticcheck: bin/staticcheck ## run staticcheck
	bin/staticcheck ./...

.PHONY: docs-check
docs-check: ## check links, names, generated parts and word count of the pages, and run their commands (some minutes)
	$(GOTEST) -count=1 -run '^Test(Docs|DocOf|WireDoc|NamedTests|ShownExample|OwnMetrics|States|Monitored|ChartReadme)' ./test
	$(GOTEST) -count=1 -run '^TestDocs' ./host/config ./sdk/sdktest
	.ci/commands README.md CONTRIBUTING.md docs/*.md

.PHONY: size
size: ## print the number of lines of each room, and its budget
	@test/size

.PHONY: nightly
nightly: ## run all stages of .ci/run, and every slow suite of .ci/rota (hours, root)
	$(needs_root)
	CI_ROTA=all .ci/run

verify: ## check format, vet, staticcheck, workflows, builds for other systems, and that generated files are up to date
	@unformatted="$$(gofmt -l .)"; if [ -n "$$unformatted" ]; then echo "gofmt these: $$unformatted"; exit 1; fi
	$(GO) vet ./...
	@$(MAKE) --no-print-directory staticcheck actionlint
	GOOS=darwin $(GO) vet ./...
	GOOS=windows $(GO) vet ./...
	$(GO) mod verify
	$(GO) mod tidy -diff
	@if command -v protoc >/dev/null; then sdk/wire/generate.sh --check; \
	else echo "verify: needs protoc to check that the protocol's Go code is up to date; try: apt-get install protobuf-compiler"; fi
