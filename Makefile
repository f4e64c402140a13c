# The same targets serve developers and CI. Everything they need goes into .venv, .tools and target: nothing outside the checkout changes.
.DEFAULT_GOAL := all
.PHONY: all help build wheel release chart proto models docs-pages docs pictures demo test test-rest test-all skew systemd image soak cluster lint format bench tools clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUST_SOURCES := Cargo.toml Cargo.lock $(shell find rust -name '*.rs' 2>/dev/null)
NATIVE := $(VENV)/.native-built
INSTALLED := $(VENV)/.installed
ARCHITECTURE ?= $(shell uname -m)
DIST ?= dist
# Of a wheel, in `devherd --version` and the metric devherd_build_info. zig links for glibc 2.17, whatever this machine has.
REVISION = $(shell git describe --always --dirty --abbrev=40 --match= 2>/dev/null)
OLDER_KUBERNETES := $(patsubst tests/kubelet/harness/releases/v%.mod,%,$(wildcard tests/kubelet/harness/releases/*.mod))
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# maturin installs into the environment that is active, which may be another one's.
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
unexport CONDA_PREFIX
# Tests start some thousand processes: without bytecode each would compile devherd again.
unexport PYTHONDONTWRITEBYTECODE

all: build lint test ## build, lint and test

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: $(NATIVE) ## set up .venv and leave the command at .venv/bin/devherd

$(INSTALLED): constraints.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "devherd: $(PYTHON) is missing — the build needs Python 3.11 or newer with venv — install it, or name one: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "devherd: $(PYTHON) is too old — Python 3.11 or newer is needed — name one: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "devherd: $(PYTHON) has no venv — the build sets up its own environment — install the python3-venv package"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing Python packages into $(VENV): a minute or less"
	@$(BIN)/pip install --quiet --constraint constraints.txt 'maturin>=1.9,<2' $$($(BIN)/python tests/requirements.py)
	@touch $@

$(NATIVE): $(INSTALLED) $(RUST_SOURCES) pyproject.toml
	@command -v cargo >/dev/null || { echo "devherd: cargo is missing — the scan core is written in Rust — install a Rust toolchain (1.85 or newer) with rustup"; exit 1; }
	@echo "compiling the scan core: about four minutes on two cores the first time, one after a change"
	@PIP_QUIET=1 $(BIN)/maturin develop --release
	@touch $@
	@printf '\nThe command is %s. To type just devherd in this shell:\n\n  export PATH="%s:$$PATH"\n\nThen try: devherd demo\n' $(BIN)/devherd '$(CURDIR)/$(BIN)'

wheel: $(INSTALLED) ## build a wheel into dist/, for machines without a Rust toolchain; ARCHITECTURE=aarch64 is for arm64
	@$(BIN)/pip install --quiet --constraint constraints.txt ziglang
	@if command -v rustup >/dev/null; then rustup --quiet target add $(ARCHITECTURE)-unknown-linux-gnu; fi
	@PATH="$(CURDIR)/$(BIN):$$PATH" DEVHERD_REVISION='$(REVISION)' python rust/wheel.py --release --locked --zig --compatibility manylinux2014 --target $(ARCHITECTURE)-unknown-linux-gnu --out '$(DIST)'

image: ## build the container image into dist/, with podman, buildah or docker; IMAGE_OPTIONS='--platform linux/arm64' and others
	@$(PYTHON) deploy/image/build.py --out '$(DIST)' $(IMAGE_OPTIONS)

release: $(INSTALLED) ## everything that a release has into dist/: wheels, images, chart, bills of materials, SHA256SUMS; says what cannot be built here
	@$(BIN)/python deploy/release.py --out '$(DIST)'

CHARTS ?= $(DIST)
CHART_VERSION = $(shell sed -n 's/^version: //p' deploy/helm/devherd/Chart.yaml)

chart: ## package the Helm chart into dist/, with files in place of its links
	@mkdir -p '$(CHARTS)'
	@tar --create --gzip --dereference --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$${SOURCE_DATE_EPOCH:-0}" \
	  --file '$(CHARTS)/devherd-$(CHART_VERSION).tgz' --directory deploy/helm $$(cd deploy/helm && find -L devherd -type f | LC_ALL=C sort)
	@echo "the chart is $(CHARTS)/devherd-$(CHART_VERSION).tgz"

proto: $(INSTALLED) ## generate the protobuf modules and types from proto/
	@$(BIN)/python -m grpc_tools.protoc --proto_path=devherd/proto=proto --python_out=python --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy --mypy_out=quiet:python proto/*.proto
	@$(BIN)/python -m grpc_tools.protoc --proto_path=devherd/proto=proto --grpc_python_out=python --plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc --mypy_grpc_out=quiet:python proto/deviceplugin_v1beta1.proto proto/dra_*.proto proto/pluginregistration_v1.proto proto/podresources_v1.proto
	@mkdir -p target
	@$(BIN)/python -m grpc_tools.protoc --proto_path=proto --descriptor_set_out=target/messages.pb proto/devices.proto proto/spool.proto proto/deviceplugin_v1beta1.proto
	@cargo run --quiet --locked --manifest-path rust/generate/Cargo.toml --target-dir target -- rust/src/spool/messages < target/messages.pb
	@rustfmt --edition 2024 --config-path rustfmt.toml rust/src/spool/messages/*.rs

models: $(INSTALLED) ## generate what follows from the models of the configuration, by python/generate.py
	@$(BIN)/python python/generate.py .

docs-pages: build ## generate the pages of docs/ that come from the program itself
	@$(BIN)/python docs/generate

pictures: build tools ## take the pictures of the status page that the docs show
	@$(BIN)/python docs/pictures

docs: docs-pages ## build the site in target/docs and check every link in it; links out of it are listed, not fetched
	@$(BIN)/sphinx-build -q -W --keep-going -c docs -d target/docs-read . target/docs
	@echo "the pages are in target/docs/index.html, the links out of them in target/docs/external-links.txt"

demo: build ## show discovery, registration, allocation, failure and recovery, without hardware or cluster
	@$(BIN)/devherd demo

test: build tools ## run the tests that a change needs: minutes; pyproject.toml names them
	@echo "== Rust: the scan core without Python =="
	@cargo test --no-default-features --no-run
	@cargo test --quiet --no-default-features
	@echo "== Python =="
	@$(BIN)/pytest

test-rest: build tools ## run what `make test` leaves out
	@$(BIN)/pytest --rest tests
	@tests/image_python.sh
	@tests/arm64.sh

test-all: test test-rest skew systemd ## run every test

skew: build ## run the tests beside the kubelet's own code again with that of older Kubernetes releases
	@for release in $(OLDER_KUBERNETES); do echo "== Kubernetes $$release =="; DEVHERD_TEST_KUBERNETES=$$release $(BIN)/pytest tests/kubelet || exit 1; done

cluster: build ## run devherd's DaemonSet in a real cluster of one node: containerd, runc, kubelet, control plane; needs root
	@tests/tools.sh cluster
	@DEVHERD_TEST_REAL_CLUSTER=1 $(BIN)/pytest -n 0 -v --timeout=900 tests/cluster/real

systemd: build ## boot a machine with a real systemd, and install, run, upgrade and remove devherd on it; needs root
	@tests/tools.sh systemd
	@DEVHERD_TEST_SYSTEMD=1 $(BIN)/pytest -n 0 -v --timeout=900 tests/systemd

soak: build ## play the fault matrix for long (tests/faults/soak.py names the settings) and print it
	@PYTHONPATH=$(CURDIR)/tests:$(CURDIR)/tests/nvml $(BIN)/python tests/faults/soak.py

lint: build ## formatters, linters, type checkers, generated code
	@cargo fmt --check
	@cargo clippy --quiet --all-targets -- -D warnings
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python -m mypy.stubtest devherd._native
	@$(BIN)/python tests/generated_code.py
	@if command -v gofmt >/dev/null; then test -z "$$(gofmt -l tests benches)" || { gofmt -d tests benches; exit 1; }; else echo "NOT LINTED: the Go code below tests and benches needs gofmt"; test "$$CI" != true; fi

format: $(INSTALLED) ## format all code
	@cargo fmt
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix-only --quiet .

bench: build ## print the figures of benches/, with ratios
	@$(BIN)/python benches/all.py

tools: ## fetch the Debian tools that some tests use into .tools
	@tests/tools.sh

clean: ## remove everything that was built
	rm -rf $(VENV) .tools target dist third-party python/devherd/_native*.so
