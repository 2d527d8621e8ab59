# The same steps as ./setup.sh, for those who type make.
.PHONY: run test explore fuzz bench lint docs package image build lock

run test explore fuzz bench lint docs package image build:
	./setup.sh $@

# New versions of everything that pyproject.toml names; look at the difference before committing it.
lock:
	python3 -m venv --clear build/lock
	build/lock/bin/pip install -q --upgrade pip setuptools
	build/lock/bin/pip install -q .
	build/lock/bin/pip freeze --all --exclude pip --exclude railbed > build/run.txt
	build/lock/bin/pip install -q -c build/run.txt '.[dev]'
	build/lock/bin/pip freeze --all --exclude pip --exclude railbed > build/dev.txt
	{ sed '/^[^#]/,$$d' requirements.lock; cat build/run.txt; } > build/new.lock && mv build/new.lock requirements.lock
	{ sed '/^[^#]/,$$d' requirements-dev.lock; grep -vxFf build/run.txt build/dev.txt; } > build/new.lock && mv build/new.lock requirements-dev.lock
	rm -rf build/lock build/run.txt build/dev.txt
