# The same steps as ./setup.sh, for those who type make.
.PHONY: run test explore fuzz bench lint build lock

run test explore fuzz bench lint build:
	./setup.sh $@

# New versions of everything that pyproject.toml names; look at the difference before committing it.
lock:
	python3 -m venv --clear build/lock
	build/lock/bin/pip install -q --upgrade pip setuptools
	build/lock/bin/pip install -q '.[dev]'
	{ sed '/^[^#]/,$$d' requirements.lock; build/lock/bin/pip freeze --all --exclude pip --exclude railbed; } > build/requirements.lock
	mv build/requirements.lock requirements.lock
	rm -rf build/lock
