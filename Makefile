PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed

# what pip needs beyond the lock's own Python, which is 3.11
LATER_PYTHONS := \
	'audioop-lts==0.2.2; python_version >= "3.13"' \
	'standard-aifc==3.13.0; python_version >= "3.13"' \
	'standard-chunk==3.13.0; python_version >= "3.13"' \
	'standard-sunau==3.13.0; python_version >= "3.13"'

.PHONY: install serve bench test test-slow fuzz chaos check sample lock

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo 'installing into $(VENV); the first time takes some minutes'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

serve: install
	@$(BIN)/e2v serve --config serve_config.yaml

test: install
	$(BIN)/python -m pytest

test-slow: install
	$(BIN)/python -m pytest -m slow

# longer, or at a rate of your own: make chaos CHAOS='--seconds 120 --rate 10'
chaos: install
	$(BIN)/python -m cluster.chaos $(CHAOS)

# damaged files and nearly right requests by the ten thousand: some minutes
fuzz: install
	$(BIN)/python -m pytest -m slow tests/fuzz tests/unit/audio/test_audio_fuzz.py

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	$(BIN)/python -m benchmarks $(BENCH)

sample: install
	$(BIN)/python tools/make_sample.py

lock:
	rm -rf build/lock
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --disable-pip-version-check '.[bench,dev,train]'
	build/lock/bin/python -m pip freeze --all --exclude pip --exclude emotion2vec-serve \
		> constraints.txt
	printf '%s\n' $(LATER_PYTHONS) >> constraints.txt
