PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
SITE := $(shell $(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' 2>/dev/null)
PROTOS := $(wildcard proto/*.proto)

.PHONY: proto
proto: ## generate the code from proto/*.proto
	$(PY) -m grpc_tools.protoc -Itarry/proto=proto -I$(SITE) --python_out=.src --pyi_out=.src --grpc_python_out=.src $(PROTOS:proto/%=tarry/proto/%)
