# The commands people type. Everything is Go: no other tool is needed, but for promtool by make rules.

GO    ?= go
SEEDS ?= 20000

.PHONY: build demo test race sim fuzz faults bench rules packages clean

build:            ## bin/edged, bin/edgectl, bin/edgebench
	$(GO) build -o bin/ ./cmd/...

demo: build       ## two hosts on this machine, all three benchmarks, out/demo.html
	bin/edgebench demo -o out

test: build       ## everything that must pass, as root or as a user who may make user namespaces
	$(GO) vet ./...
	$(GO) test -timeout 8m ./...
	LAZYALL=1 $(GO) test -timeout 8m ./internal/engine

race:             ## the same under the race detector, for the packages that have goroutines
	$(GO) test -race -timeout 10m ./edge ./internal/ipc ./internal/daemon ./internal/metrics ./linkdrv/... ./bench/...

sim:              ## any number of simulated worlds: make sim SEEDS=100000
	$(GO) test ./internal/sim -run TestSwarm -timeout 0 -seeds $(SEEDS)

FUZZTIME ?= 10s
# Now and then the tool itself fails when its time is over ("context deadline exceeded", with no failing input): that target, and only then, runs once more.
fuzz:             ## every decoder for FUZZTIME
	@mkdir -p out; for p in $$($(GO) list ./...); do \
		for f in $$($(GO) test -list '^Fuzz' $$p 2>/dev/null | grep '^Fuzz'); do \
			echo "$$p $$f"; \
			for try in 1 2; do \
				{ $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$p; echo $$? >out/fuzz.status; } 2>&1 | tee out/fuzz.log; \
				test "$$(cat out/fuzz.status)" = 0 && break; \
				{ test $$try = 1 && grep -q 'context deadline exceeded' out/fuzz.log && ! grep -q 'Failing input' out/fuzz.log; } || exit 1; \
			done; \
		done; \
	done

SOAK ?= 20s
faults: build     ## the short form of the fault scenarios, and a soak of SOAK: out/faults, out/soak
	bin/edgebench faults --lab --short -o out/faults
	bin/edgebench soak --lab -D $(SOAK) -o out/soak

bench:            ## the pieces of the packet path
	$(GO) test -run '^$$' -bench . -benchmem ./internal/... ./flowctl ./sched ./regmem ./remap ./linkdrv ./edge ./bench/pattern

PROMTOOL ?= promtool
rules:            ## the alert rules, and the tests of when they fire, by Prometheus' own tool
	cd deploy && $(PROMTOOL) check rules edged.rules.yml && $(PROMTOOL) test rules edged.rules.test.yml

# A version that a package may have: what is after a tag is newer than it, v1.2.3-4-g5678abc is 1.2.3+4.g5678abc.
VERSION ?= $(or $(shell git describe --tags 2>/dev/null | sed 's/^v//; s/-\([0-9]*\)-g/+\1.g/'),0.0.0)
NFPM    ?= $(GO) run github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2
packages:         ## out/packages: a deb and an rpm, of static binaries: make packages VERSION=1.2.3 (GOARCH=arm64)
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/ ./cmd/...
	mkdir -p out/packages
	for p in deb rpm; do VERSION=$(VERSION) ARCH=$$($(GO) env GOARCH) GOARCH= $(NFPM) package -f deploy/nfpm.yaml -p $$p -t out/packages/ || exit 1; done

clean:
	rm -rf bin out
