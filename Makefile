# The commands people type. Everything is Go: no other tool is needed, but for promtool by make rules, nft by make
# faults, and a C compiler by the targets that end in -c.

GO    ?= go
SEEDS ?= 20000

.PHONY: build pgo demo test race lint sim fuzz faults bench figures figures-readme rules packages packages-c module clean lib-c test-c tests-c check-preload lab-dsm lab-c bench-c

# make module PATH=example.org/multiedge: a PATH on the command line names a module, and commands are found where they were before.
ifeq ($(origin PATH),command line)
MODULE := $(PATH)
override PATH := $(shell PATH=/usr/bin:/bin; tr '\0' '\n' </proc/$$PPID/environ | sed -n 's/^PATH=//p')
endif

build:            ## bin/edged, bin/edgectl, bin/edgebench, bin/edgefault, bin/edgestudy
	$(GO) build -o bin/ ./cmd/...

pgo:              ## renews the profiles that the compiler uses for the hot paths (default.pgo)
	mkdir -p out && $(GO) build -trimpath -pgo=off -o out/edgebench-pgo ./cmd/edgebench
	out/edgebench-pgo pgo cmd/edged/default.pgo cmd/edgebench/default.pgo cmd/edgestudy/default.pgo

demo: build       ## two hosts on this machine, all three benchmarks, out/demo.html
	bin/edgebench demo -o out

figures: build    ## the five papers' figures and further ones, with the papers' numbers: out/figures/index.html
	bin/edgebench figures -o out/figures

figures-readme: build  ## measures what README.md and docs/PERFORMANCE.md say anew, 12 minutes; bench/figures.sh has the commands
	bench/figures.sh

# What go test itself would vet, go vet has vetted. Both look at the commands without their profiles (default.pgo): with
# them, each package, those of the standard library too, is vetted and compiled once more for each such command and its
# tests. edged and edgebench in bin, which lab-c and demo run, are built with them.
test: build       ## everything that must pass, as root or as a user who may make user namespaces
	$(GO) vet -pgo=off ./...
	$(GO) test -pgo=off -vet=off -timeout 8m ./...
	LAZYALL=1 $(GO) test -pgo=off -vet=off -timeout 8m ./internal/engine

# Of two forms of a test whose goroutines do the same, one: what is left out here, make test runs.
ONCE := TestLabMeasuresEverything/.*_plaintext|TestRoutedHosts/IPv6
race:             ## the same under the race detector, for the packages that have goroutines or labs
	$(GO) test -race -vet=off -timeout 10m -skip '$(ONCE)' ./edge ./edge/dsm ./edge/stream ./edge/examples \
		./internal/ipc ./internal/shard ./internal/inspect ./internal/daemon ./internal/metrics ./linkdrv/... \
		$$($(GO) list ./bench/... | grep -vE '/bench/(fabric|fairness|figure|pattern|xlate)($$|/)')

lint:             ## staticcheck, at the version that go.mod names
	$(GO) tool staticcheck ./...

sim:              ## any number of simulated worlds: make sim SEEDS=100000
	$(GO) test ./internal/sim -run 'TestSwarm|TestLiveness' -timeout 0 -seeds $(SEEDS) -live $(SEEDS)

FUZZTIME ?= 10s
# The test program of a package is linked once, for all of its targets; inputs that were found are kept where go test
# keeps them. Now and then the tool itself fails when its time is over ("context deadline exceeded"), with no failing
# input: that target, and only then, runs once more.
fuzz:             ## every decoder for FUZZTIME
	@mkdir -p out; $(GO) list -f '{{.Dir}} {{.ImportPath}}' ./... >out/fuzz.packages || exit 1; \
	while read -r d p; do \
		targets=$$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$d/*_test.go 2>/dev/null); \
		test -z "$$targets" || $(GO) test -vet=off -c -fuzz . -o out/fuzz.test $$p || exit 1; \
		for f in $$targets; do \
			echo "$$d $$f"; \
			for try in 1 2; do \
				{ (cd $$d && $(CURDIR)/out/fuzz.test -test.run '^$$' -test.fuzz "^$$f\$$" -test.fuzztime $(FUZZTIME) \
					-test.fuzzcachedir "$$($(GO) env GOCACHE)/fuzz/$$p"); echo $$? >out/fuzz.status; } 2>&1 | tee out/fuzz.log; \
				test "$$(cat out/fuzz.status)" = 0 && break; \
				{ test $$try = 1 && grep -q 'context deadline exceeded' out/fuzz.log && ! grep -q 'Failing input' out/fuzz.log; } || exit 1; \
			done; \
		done; \
	done <out/fuzz.packages

SOAK ?= 20s
faults: build     ## the short form of the fault scenarios, and a soak of SOAK: out/faults, out/soak
	bin/edgefault --lab --short -o out/faults
	bin/edgefault soak --lab -D $(SOAK) -o out/soak

bench:            ## the pieces of the packet path
	$(GO) test -run '^$$' -bench . -benchmem ./internal/... ./flowctl ./sched ./regmem ./remap ./linkdrv ./edge ./edge/stream ./bench/pattern

PROMTOOL ?= promtool
rules:            ## the alert rules, and the tests of when they fire, by Prometheus' own tool
	cd deploy && $(PROMTOOL) check rules edged.rules.yml edge-dsm.rules.yml && \
		$(PROMTOOL) test rules edged.rules.test.yml edge-dsm.rules.test.yml

# A version that a package may have: what is after a tag is newer than it, v1.2.3-4-g5678abc is 1.2.3+4.g5678abc.
# Where no tag is: the version that the programs say, with the commit.
BASE    := $(shell sed -n 's/^const Base = "\(.*\)"/\1/p' internal/buildinfo/buildinfo.go)
VERSION ?= $(or $(shell git describe --tags 2>/dev/null | sed 's/^v//; s/-\([0-9]*\)-g/+\1.g/'),$(BASE)$(shell git rev-parse --short=12 HEAD 2>/dev/null | sed 's/^/+g/'))
NFPM    ?= $(GO) run github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2
packages:         ## out/packages: a deb and an rpm, of static binaries: make packages VERSION=1.2.3 (GOARCH=arm64)
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/ ./cmd/...
	mkdir -p out/packages out/man out/completion/bash out/completion/zsh out/completion/fish
	for p in edged.8 edgectl.1 edgebench.1 edgefault.1 edgestudy.1; do n=$${p%.*}; run="env GOARCH= $(GO) run ./cmd/$$n"; \
		$$run --man-page >out/man/$$p && $$run --completion-bash >out/completion/bash/$$n && \
		$$run --completion-zsh >out/completion/zsh/_$$n && $$run --completion-fish >out/completion/fish/$$n.fish || exit 1; done
	awk -f deploy/edged.toml.awk deploy/edged.toml >out/man/edged.toml.5
	for p in deb rpm; do VERSION=$(VERSION) ARCH=$$($(GO) env GOARCH) GOARCH= $(NFPM) package -f deploy/nfpm.yaml -p $$p -t out/packages/ || exit 1; done

packages-c:       ## out/packages: libedge1, libedge-dev, edge-preload, libfabric-edge, edge-verbs, libedge-dsm1, libedge-dsm-dev, deb and rpm, and uses them (GOARCH=arm64 CC=aarch64-linux-gnu-gcc)
	mkdir -p out/packages
	for p in deb rpm; do \
		export VERSION=$(VERSION) ARCH=$$($(GO) env GOARCH) TREE=out/libedge/$$p LIB=/usr/lib64; \
		test $$p = rpm || LIB=/usr/lib/$$($(CC) -print-multiarch); \
		$(MAKE) -C edge/c install OUT=$(CURDIR)/out/c/packaged CFLAGS=-O2 PREFIX=/usr LIBDIR=$$LIB DESTDIR=$(CURDIR)/$$TREE && \
		$(MAKE) -C edge/dsm/c install OUT=$(CURDIR)/out/dsm/packaged CFLAGS=-O2 PREFIX=/usr LIBDIR=$$LIB \
			VERSION=$(VERSION) DESTDIR=$(CURDIR)/$$TREE && \
		$(MAKE) -C edge/preload install OUT=$(CURDIR)/out/preload/packaged CFLAGS=-O2 PREFIX=/usr LIBDIR=$$LIB DESTDIR=$(CURDIR)/$$TREE && \
		$(MAKE) -C edge/ofi install OUT=$(CURDIR)/out/ofi/packaged CFLAGS=-O2 PREFIX=/usr LIBDIR=$$LIB DESTDIR=$(CURDIR)/$$TREE && \
		$(MAKE) -C edge/verbs install OUT=$(CURDIR)/out/verbs/packaged CFLAGS=-O2 PREFIX=/usr LIBDIR=$$LIB DESTDIR=$(CURDIR)/$$TREE && \
		for of in libedge1 libedge-dev edge-preload libfabric-edge edge-verbs libedge-dsm1 libedge-dsm-dev; do \
			GOARCH= $(NFPM) package -f deploy/$$of.yaml -p $$p -t out/packages/ || exit 1; done || exit 1; \
	done
	@test "$$($(GO) env GOARCH)" != "$$(dpkg --print-architecture 2>/dev/null)" || deploy/packages.check.sh out/packages '$(VERSION)' '$(CC)'

lib-c:            ## the C library, static and shared: out/c
	$(MAKE) -C edge/c VERSION=$(VERSION)

DRIVE := $(GO) test -count=1 -tags ctest
test-c: check-preload lab-dsm drive-plain drive-asan drive-tsan  ## its tests: by itself, under ASan and UBSan, and under TSan; and those of edge-run that need no daemon
	$(GO) vet -tags ctest ./edge/c/drive ./edge/dsm/c/drive
tests-c:
	$(MAKE) -C edge/c tests
check-preload:
	$(MAKE) -C edge/preload check
lab-dsm:
	$(MAKE) -C edge/dsm/c lab
drive-%: tests-c
	CTEST=$(CURDIR)/out/c/$* $(DRIVE) -timeout 8m ./edge/c/drive

# Each has namespaces of its own: make -j2 lab-c runs two at a time, once what they need is installed. That of preload
# consists of many short ones, which fill the time beside the others.
lab-c: lab-c-verbs lab-c-ofi lab-c-preload  ## edge-run, libfabric's provider, libibverbs with real programs, as root: short
lab-c-%: build
	$(MAKE) -C edge/$* lab-short

bench-c: tests-c  ## the C client beside the Go client: 8-byte writes a second, one at a time, 1 MiB
	CTEST=$(CURDIR)/out/c/plain $(DRIVE) -run '^$$' -bench Clients -benchtime 1x ./edge/c/drive

module:           ## move the module to where it will live: make module PATH=example.org/multiedge
	@case '$(MODULE)' in *.*/*[!/]) ;; *) echo 'want make module PATH=example.org/multiedge: a path with a dot before its first slash' >&2; exit 1;; esac
	old=$$($(GO) list -m) && $(GO) mod edit -module '$(MODULE)' && \
		find . -name '*.go' -exec sed -i "s#\"$$old/\([a-z\"]\)#\"$(MODULE)/\1#g" {} + && \
		$(GO) build ./... && echo "the module is $(MODULE) now; it was $$old." && \
		echo "Profiles (default.pgo) name functions by the old one: make pgo renews them."

clean:
	rm -rf bin out
