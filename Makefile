# Everything a contributor or a build machine runs. Needs Python 3.11 or newer.
# `make demo` and `make test` build .venv themselves the first time and whenever pyproject.toml changes:
# the demo what nodes and clients need, everything else also Spark, chaos and the tools.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Set to something, every node that is started would compile all of its code anew.
export PYTHONDONTWRITEBYTECODE =

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
NODE_READY := $(VENV)/node-ready-$(shell $(PYTHON) -c 'import hashlib; print(hashlib.sha256(open("pyproject.toml", "rb").read()).hexdigest()[:16])')
READY := $(NODE_READY:$(VENV)/node-ready-%=$(VENV)/ready-%)
PROTOS := $(wildcard proto/*.proto)
ROCKETMQ_PROTOS := $(wildcard gateway/rocketmq/protocol/*.proto)
GENERATED_FROM := $(PROTOS:%=tarry/%) $(ROCKETMQ_PROTOS:%=tarry/%)
PROTOC = $(PY) -m grpc_tools.protoc -Itarry/proto=proto -Itarry/gateway/rocketmq/protocol=gateway/rocketmq/protocol \
	-I"$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: venv
venv: $(NODE_READY) ## .venv with what nodes and clients need, once for each version of pyproject.toml

.PHONY: venv-all
venv-all: $(READY) ## .venv with everything: Spark, chaos, and what tests and checks need

$(NODE_READY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "tarry needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "== building $(VENV) (once; a minute at most)"
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)  # a half-made one too
	$(PY) -m pip install --editable ".[node,console]"
	@rm -f $(VENV)/node-ready-* && touch $@

$(READY): $(NODE_READY)
	@echo "== adding Spark, chaos and the tools to $(VENV) (once; some minutes at most)"
	$(PY) -m pip install --upgrade "pip>=25.1"  # for --group
	$(PY) -m pip install --group dev --editable ".[all]"
	@rm -f $(VENV)/ready-* && touch $@

.PHONY: demo
demo: $(NODE_READY) ## three real nodes, 20,000 messages, a leader killed: what was lost, early or late
	@$(PY) -m tarry.chaos.demo

.PHONY: test
test: $(READY) ## all tests (ARGS="-m 'not cluster'" for the fast ones); those of Spark are skipped without Java 17
	@$(PY) -m tests $(ARGS)

PYTHONS ?= 3.11 3.13

.PHONY: test-pythons
test-pythons: $(READY) ## the tests of one process with the other supported Pythons that are installed (PYTHONS="3.11 3.13")
	@.ci/other-pythons $(PYTHONS)

.PHONY: lint
lint: $(READY) ## style of the code, its format, the protocol's rules, and that releases would understand it
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	@$(PROTOC) --descriptor_set_out=$(VENV)/protocol.binpb --include_imports --include_source_info \
		$(PROTOS:proto/%=tarry/proto/%)
	$(VENV)/bin/buf lint $(VENV)/protocol.binpb --config buf.yaml
	@for released in proto/released/*.binpb; do \
		$(VENV)/bin/buf breaking $(VENV)/protocol.binpb --against "$$released" --config buf.yaml \
			|| { echo "the protocol breaks with that of $$released: add fields and calls, and reserve the numbers of removed ones" >&2; exit 1; }; \
	done

.PHONY: types
types: $(READY) ## mypy, strict
	$(VENV)/bin/mypy

.PHONY: proto
proto: $(READY) ## generate the code from proto/*.proto, and from RocketMQ's protocol
	$(PROTOC) --python_out=.src --pyi_out=.src --grpc_python_out=.src $(GENERATED_FROM)

.PHONY: proto-check
proto-check: $(READY) ## prove that the committed generated code is current
	@fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	$(PROTOC) --python_out="$$fresh" --pyi_out="$$fresh" --grpc_python_out="$$fresh" $(GENERATED_FROM); \
	for made in "$$fresh"/tarry/proto/* "$$fresh"/tarry/gateway/rocketmq/protocol/*; do \
		cmp "$$made" "$${made#"$$fresh"/tarry/}" || { echo "run 'make proto' and commit" >&2; exit 1; }; \
	done; \
	for kept in proto/*_pb2* gateway/rocketmq/protocol/*_pb2*; do \
		test -e "$$fresh/tarry/$$kept" || { echo "$$kept has no .proto any more" >&2; exit 1; }; \
	done; \
	echo "generated code is current"

.PHONY: format
format: $(READY) ## mend what ruff can mend
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

BENCH_READY = $(READY:$(VENV)/ready-%=$(VENV)/bench-ready-%)

$(BENCH_READY): $(READY) bench/side_by_side/install $(wildcard bench/side_by_side/peers/*.java)
	$(PY) -m pip install --quiet --group bench
	bench/side_by_side/install $(VENV)/peers/bin
	@rm -f $(VENV)/bench-ready-* && touch $@

.PHONY: bench
bench: $(BENCH_READY) ## tarry and its peers side by side, 15 minutes at most (ARGS="--row schedule_1000x100 --only tarry,etcd3")
	@$(PY) -m tarry.bench.side_by_side $(ARGS)

.PHONY: bench-quick
bench-quick: $(BENCH_READY) ## the same in two minutes: few rows, few systems, short turns
	@$(PY) -m tarry.bench.side_by_side --quick $(ARGS)

.PHONY: bench-rocketmq-clients
bench-rocketmq-clients: $(BENCH_READY) ## RocketMQ's own clients at the gateway and at RocketMQ itself, in turns (15 min, ARGS="--language go")
	@.ci/rocketmq-clients || true
	@$(PY) -m tarry.bench.rocketmq_clients $(ARGS)

.PHONY: bench-readme
bench-readme: $(READY) ## the newest figures of bench and bench-wheel into README and bench/NOTES
	@$(PY) -m tarry.bench.readme

.PHONY: bench-parts
bench-parts: $(READY) ## benchmarks of the parts (each prints one JSON object last)
	@for name in wheel replication delivery keys; do echo "== $$name"; $(PY) -m "tarry.bench.$$name"; done
	@for part in ledger metrics filter; do echo "== $$part"; $(PY) -m tarry.bench.part_cost $$part; done

.PHONY: bench-console
bench-console: $(READY) ## the console's pages beside a million pending messages (ARGS="--pending 10000000 --topics 1000")
	@$(PY) -m tarry.bench.console_pages $(ARGS)

.PHONY: bench-cancel
bench-cancel: $(READY) ## a million messages cancelled by due time under load: pace, and another topic's lateness
	@$(PY) -m tarry.bench.bulk_cancel $(ARGS)

.PHONY: bench-export
bench-export: $(READY) ## a million messages imported and exported: how many a second, beside the aims (2 min)
	@$(PY) -m tarry.bench.export $(ARGS)

.PHONY: bench-recurring
bench-recurring: $(READY) ## 100,000 schedules that recur: idle CPU of the nodes, memory, failover, lateness (8 min)
	@$(PY) -m tarry.bench.recurring $(ARGS)

.PHONY: bench-cost
bench-cost: $(READY) ## cancel, get and reschedule by id with ten thousand and ten million pending, in turns (8 min)
	@$(PY) -m tarry.bench.cancel_cost $(ARGS)

.PHONY: bench-durability
bench-durability: $(READY) ## sync and async durability in turns, RocketMQ's too (10 min, ARGS="--folder /var/tmp --sync-ms 2")
	@$(PY) -m tarry.bench.durability $(ARGS)

.PHONY: bench-wheel
bench-wheel: $(READY) ## the wheel at scale: ten million pending, mass expiry, lateness, recovery (5 min)
	@$(PY) -m tarry.bench.wheel_nodes $(ARGS)

SEEDS ?= 100
FIRST ?= 1
WORLD ?= both
ABLATE ?=

.PHONY: fuzz
fuzz: MINUTES = 10
fuzz: $(READY) ## absurd requests and log entries, MINUTES=10 of them; SEED= plays one again
	@PYTHONPATH=. $(PY) -m tests.fuzz --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

.PHONY: simulate
simulate: SECONDS = 6
simulate: $(READY) ## whole clusters on virtual time, all cores (SEEDS=100 FIRST=1 SECONDS=6 WORLD=both)
	@$(PY) -m tests.simulation --seeds $(SEEDS) --first $(FIRST) --seconds $(SECONDS) --world $(WORLD) \
		--ablate "$(ABLATE)"

.PHONY: simulate-ablation
simulate-ablation: $(READY) ## each guard taken out in turn: the first seed, or the scenario, that notices
	@$(PY) -m tests.simulation.ablation_table

.PHONY: mutants
mutants: $(READY) ## one line that guards safety changed at a time, and which test notices (ARGS="a_stranger_votes", ARGS=--list)
	@$(PY) -m tests.mutants $(ARGS)

.PHONY: mutants-containers
mutants-containers: $(READY) ## docker-compose.yml and Dockerfile with one mistake at a time, each carried out: their test has to notice
	@$(PY) -m pytest -n logical --maxprocesses 2 -m mutant $(ARGS)

.PHONY: turns
turns: $(READY) ## tests of what one turn of an event loop costs, held to TOLERANCE=1.25 times the bound; for a machine that does nothing else
	@TURN_TOLERANCE=$(or $(TOLERANCE),1.25) $(PY) -m pytest $$(grep -rlE "from tests import turns|from tests.turns" tests --include='test_*.py') $(ARGS)

.PHONY: handover
handover: $(READY) ## leaders transferred and killed under load (ARGS="--rate 5000 --transfers 50 --kills 50")
	@$(PY) -m tarry.chaos.leader_changes $(ARGS)

.PHONY: soak
soak: MINUTES = 60
soak: $(READY) ## three real nodes under a steady load for MINUTES=60: what is lost, and what grows (RATE=2000 ARGS=--heap)
	@$(PY) -m tarry.chaos.soak --minutes $(MINUTES) --rate $(or $(RATE),2000) $(ARGS)

.PHONY: toxiproxy
toxiproxy: $(READY) ## the proxy that faults on the network go through, built once into a cache folder
	@$(PY) -m tarry.chaos.cluster.toxiproxy

SCENARIO ?=
SEED ?= 1
RUNS ?= 0

.PHONY: chaos
chaos: $(READY) ## real clusters under faults of every kind (SCENARIO=name; ARGS=--list names them)
	@$(PY) -m tarry.chaos --scenario "$(SCENARIO)" --seed $(SEED) $(ARGS)

.PHONY: chaos-explore
chaos-explore: MINUTES = 30
chaos-explore: $(READY) ## faults drawn at random (MINUTES=30 SEED=1); a broken run prints what replays it
	@$(PY) -m tarry.chaos --minutes $(if $(filter-out 0,$(RUNS)),0,$(MINUTES)) --runs $(RUNS) --seed $(SEED) $(ARGS)

MESSAGES ?= 6000
KILLS ?= 2

.PHONY: reconcile
reconcile: $(READY) ## a cluster whose leaders are killed, its ledgers reconciled by Spark (MESSAGES=6000 KILLS=2); needs Java 17
	@run=$$(mktemp -d); trap 'rm -rf "$$run"' EXIT; \
	$(PY) -m tarry.chaos.ledger_run "$$run" --messages $(MESSAGES) --kills $(KILLS); \
	$(PY) -m tarry.spark reconcile --small --settle-ms 0 --out out/reconcile "$$run"

.PHONY: chaos-reconcile
chaos-reconcile: $(READY) ## chaos, and Spark over each run's ledgers, which must find nothing (SCENARIO=one,two); an hour
	@runs=$$(mktemp -d); trap 'rm -rf "$$runs"' EXIT; failed=; \
	$(PY) -m tarry.chaos --scenario "$(SCENARIO)" --seed $(SEED) --keep "$$runs" \
		--report out/reconcile/chaos.html $(ARGS) || failed=" chaos"; \
	$(PY) -m tarry.spark reconcile --each --small --settle-ms 2000 -o json --out out/reconcile "$$runs"/* \
		|| failed="$$failed reconciliation"; \
	echo "failed:$${failed:- none}"; [ -z "$$failed" ]

.PHONY: moving-in
moving-in: $(READY) ## a million schedules moved in from a real Redis and a real PostgreSQL, and counted (ROWS=1000000); five minutes
	@MOVED_ROWS=$(or $(ROWS),1000000) $(PY) -m pytest tests/cluster/test_moving.py -k test_the_page_moves --timeout 1800 $(ARGS)

.PHONY: reconcile-scale
reconcile-scale: $(READY) ## made-up ledgers of 1, 10 and 50 million rows reconciled (ARGS="--rows 1000000"); 15 min
	@$(PY) -m tarry.spark scale -o json $(ARGS)

.PHONY: check
check: lint types proto-check test turns ## what has to pass before a change lands

.PHONY: clean
clean: ## remove what was built, the virtual environment too
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist out .src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
