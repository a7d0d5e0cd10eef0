# The two main commands are `make up` and `make test`; `make help` lists all.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
BIN := .venv/bin
GATEWAY ?= dev

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: up
up: env ## Create and start a gateway: Python environment, container engine, images, gateway, test sandbox
	@scripts/engine start
	@scripts/build-images
	@$(BIN)/holdfast up $(GATEWAY)
	@scripts/finish-up $(GATEWAY)

.PHONY: down
down: env ## Stop the gateway, and the container engine if `make up` started it; keep all data
	@! $(BIN)/holdfast list --json | grep -q '"name":"$(GATEWAY)"' || $(BIN)/holdfast stop $(GATEWAY)
	@scripts/engine stop

.PHONY: test
test: env ## Run all checks and tests (a short form of the long matrices)
	@scripts/with-engine scripts/run-tests

.PHONY: test-all
test-all: env ## Run all checks and tests, the long matrices in full
	@scripts/with-engine scripts/run-tests --all

.PHONY: bench
bench: env ## Run all benchmarks; each measures its baseline in the same run
	@scripts/with-engine scripts/run-benches

.PHONY: lint
lint: env ## Run the linters, type checkers and import contracts
	@scripts/lint

.PHONY: format
format: env ## Format the code
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

.PHONY: images
images: env ## Build the node, gateway and sandbox images
	@scripts/with-engine scripts/build-images

.PHONY: env
env: ## Create the locked Python environment in .venv
	@scripts/setup

.PHONY: docs
docs: env ## Build the documentation site in build/site
	@scripts/build-site

.PHONY: lock
lock: env ## Compile requirements/*.in to hashed locks
	@scripts/lock
