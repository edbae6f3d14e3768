# Everything here works on a machine that has Go, git and make.
.DEFAULT_GOAL := help

# The race detector lets each process wait a second at its end, and tests start thousands.
export GORACE := atexit_sleep_ms=10
# "make lint" runs vet, which analyses all that is imported, too.
NOVET := -vet=off

.PHONY: help
help: ## Say what there is.
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: test
test: controlplane ## Run every test, on a real API server too.
	@# The tests with a server wait most of the time, and the others compute.
	$(MAKE) --no-print-directory --jobs=2 unit-library test-servers unit-modules

.PHONY: test-servers
test-servers:
	@# These drive processes of their own. The longest begins first.
	cd e2e && go test $(NOVET) -count=1 -p 3 -timeout 80m ./manager ./...

.PHONY: unit
unit: ## Run the tests that need no API server.
	$(MAKE) --no-print-directory --jobs=2 unit-library unit-modules

.PHONY: unit-library
unit-library:
	go test $(NOVET) -timeout 40m ./...

.PHONY: unit-modules
unit-modules:
	cd cmd/informctl && go test $(NOVET) -timeout 40m ./...
	cd metrics && go test $(NOVET) -timeout 40m ./...
	cd postgres && go test $(NOVET) -timeout 40m ./...
	cd relay && go test $(NOVET) -timeout 40m ./...
	cd durable/controllerruntime && go test $(NOVET) -timeout 40m ./...
	cd tools/dockerfile && go test $(NOVET) -timeout 40m ./...
	cd tools/releasetest && go test $(NOVET) -count=1 -timeout 40m ./... # its commands read files that go test does not know of

.PHONY: race
race: controlplane ## Run again under the race detector what has goroutines; needs a C compiler.
	$(MAKE) --no-print-directory --jobs=2 race-library race-modules

.PHONY: race-library
race-library:
	go test $(NOVET) -race -timeout 40m ./...

.PHONY: race-modules
race-modules:
	cd cmd/informctl && go test $(NOVET) -race -timeout 40m ./...
	cd metrics && go test $(NOVET) -race -timeout 40m ./...
	cd postgres && go test $(NOVET) -race -timeout 40m ./...
	cd relay && go test $(NOVET) -race -timeout 40m ./...
	cd durable/controllerruntime && go test $(NOVET) -race -timeout 40m ./...
	@# The other tests with a server drive processes of their own, but for manager, whose 800 caches would take 10 minutes.
	cd e2e && go test $(NOVET) -race -count=1 -timeout 80m ./factories ./sample ./soak

.PHONY: controlplane
controlplane: ## Build kube-apiserver and etcd, once.
	cd e2e && go run ./controlplane/cmd/controlplane -build-only

.PHONY: lint
lint: ## Run the linters.
	cd tools && go build -o ../bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	bin/golangci-lint run ./...
	cd cmd/informctl && ../../bin/golangci-lint run --config ../../.golangci.yml ./...
	cd metrics && ../bin/golangci-lint run --config ../.golangci.yml ./...
	cd postgres && ../bin/golangci-lint run --config ../.golangci.yml ./...
	cd relay && ../bin/golangci-lint run --config ../.golangci.yml ./...
	cd durable/controllerruntime && ../../bin/golangci-lint run --config ../../.golangci.yml ./...
	cd tools/dockerfile && ../../bin/golangci-lint run --config ../../.golangci.yml ./...
	cd tools/releasetest && ../../bin/golangci-lint run --config ../../.golangci.yml ./...
	cd e2e && ../bin/golangci-lint run --config ../.golangci.yml ./...
	cd tools && go test ./words && go build -o ../bin/words ./words
	git ls-files '*.go' | xargs bin/words

.PHONY: tidy
tidy: ## Tidy the modules that are released together: "go mod tidy" cannot before their release.
	tools/tidy

.PHONY: compat
compat: ## Compile a module that imports the library with the oldest client-go it can have and the newest there is.
	tools/compat

.PHONY: demo
demo: controlplane ## Show a cold and a warm start on a real API server, and kubectl without it.
	cd e2e && go run ./demo

.PHONY: demo-postgres
demo-postgres: controlplane ## Show two publishers, a file that follows PostgreSQL, and SQL; needs Debian's postgresql.
	cd e2e && go run ./demo -postgres

.PHONY: build
build: ## Build bin/informctl, which is bin/kubectl-informer, too.
	cd cmd/informctl && CGO_ENABLED=0 go build -trimpath -o ../../bin/informctl .
	ln -sf informctl bin/kubectl-informer

.PHONY: docs
docs: ## Write docs/commands.md and docs/man from the commands' help, docs/metrics.md from the collector.
	cd cmd/informctl && go test -count=1 -run '^TestDocs$$' ./internal/cli -update
	cd metrics && go test -count=1 -run '^TestPage$$' . -update

.PHONY: bench
bench: controlplane ## Measure starts, lists, changes and reads beside client-go, write docs/benchmarks.md: 2 hours; BENCH_FULL=1, with 150,000 objects: 4 hours.
	cd e2e && go run ./bench -out ../docs -kube

.PHONY: soak
soak: controlplane ## Kill, cut, restart, compact and fill for an hour, on a real API server; as root the disk is one.
	cd e2e && go test -count=1 -timeout 80m -v -run TestSoak ./soak -soak.duration 1h

.PHONY: torture
torture: ## Cut power, kill, fill disks, fail calls, damage files, play 10,000 random schedules: an hour, on Linux as root.
	go test -tags torture -count=1 -timeout 30m -v -run TestTorture ./store/bolt
	go test -count=1 -timeout 30m -v -run 'TestCrash|TestDamage|TestKill|Faults|TestBroken|TestLockstep' ./store/bolt \
		-images 10000 -damages 5000 -kills 1000 -faults all -rapid.checks 500
	go test -count=1 -timeout 120m -run 'TestSchedules|TestTracesGenerated' ./informer -schedules 10000 -informer.scripts 5000
	go test -count=1 -timeout 60m -v -run "TestSchedules|TestKill|TestSharedHasRoom|TestManyRounds" ./durable -schedules 1000 -schedules.seed 0 -kills 1000
	go test -run '^$$' -fuzz FuzzRecord -fuzztime 20s -fuzzminimizetime 1x ./store/bolt/internal/record
	go test -run '^$$' -fuzz FuzzHeader -fuzztime 20s -fuzzminimizetime 1x ./store/bolt/internal/record
	go test -run '^$$' -fuzz FuzzIndexKey -fuzztime 20s -fuzzminimizetime 1x ./store/bolt/internal/record
	go test -run '^$$' -fuzz FuzzBlock -fuzztime 20s -fuzzminimizetime 1x ./store/bolt/internal/record
	go test -run '^$$' -fuzz FuzzPreflight -fuzztime 40s -fuzzminimizetime 1x ./store/bolt
	go test -run '^$$' -fuzz FuzzSkip -fuzztime 20s -fuzzminimizetime 1x ./internal/jsonscan
	go test -run '^$$' -fuzz FuzzJSON -fuzztime 20s -fuzzminimizetime 1x ./codec
