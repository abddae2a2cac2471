# ccPFS: what can be done here. `make` alone prints this list.

PREFIX ?= /usr/local
DESTDIR ?=
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
RELEASE := $(TARGET)/release
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## installs what is missing, builds, and shows ccPFS at work on this machine (some minutes)
	@demo/run.sh

.PHONY: build
build: ## the command, the preload library, the C libraries and, where MPI is, the MPI-IO layer (MPICC=...), in target/release
	@scripts/install-packages.sh gcc libc6-dev
	cargo build --release --workspace --exclude xtask --exclude ccpfs-e2e
	@if command -v mpicc.mpich mpicc >/dev/null; then scripts/build-mpiio.sh $(RELEASE)/libccpfs_mpiio.so $(MPICC); \
	else echo 'no MPI compiler: without the MPI-IO layer (install libmpich-dev, then make build)'; fi

.PHONY: test
test: ## every check and every test, as the CI runs them
	@scripts/test.sh

.PHONY: lint
lint: ## format, clippy, layers, tidy, citations
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo xtask layers
	cargo xtask tidy
	cargo xtask cites

.PHONY: bench
bench: ## the measured figures, into target/bench; FIGURES="contention flush" for some of them
	@scripts/bench.sh $(FIGURES)

.PHONY: install
install: build ## into PREFIX (/usr/local), below DESTDIR if set
	install -D -m 755 $(RELEASE)/ccpfs $(DESTDIR)$(PREFIX)/bin/ccpfs
	install -D -m 755 $(RELEASE)/libccpfs_preload.so $(DESTDIR)$(PREFIX)/lib/libccpfs_preload.so
	install -D -m 755 $(RELEASE)/libccpfs.so $(DESTDIR)$(PREFIX)/lib/libccpfs.so
	if [ -e $(RELEASE)/libccpfs_mpiio.so ]; then \
		install -D -m 755 $(RELEASE)/libccpfs_mpiio.so $(DESTDIR)$(PREFIX)/lib/libccpfs_mpiio.so; fi
	install -D -m 644 $(RELEASE)/libccpfs.a $(DESTDIR)$(PREFIX)/lib/libccpfs.a
	install -D -m 644 doors/capi/include/ccpfs.h $(DESTDIR)$(PREFIX)/include/ccpfs.h
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	$(RELEASE)/ccpfs completions bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/ccpfs

.PHONY: clean
clean: ## removes target
	cargo clean
