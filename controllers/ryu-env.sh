#!/bin/sh
# Builds the Python environment in which the controller runs on ryu: ryu-env.sh [DIR]   (default: .venv-ryu beside
# this folder).  Quick when DIR is already what ryu-requirements.lock asks for.  PYTHON names the interpreter; without
# it that of the project's own .venv is taken, if there is one.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
dir=${1:-"$here/../.venv-ryu"}
lock="$here/ryu-requirements.lock"
python=${PYTHON:-"$here/../.venv/bin/python"}
[ -x "$python" ] || python=$(command -v "${PYTHON:-python3}")
exec 9>"$dir.lock" # two that want it at the same time: one builds it
flock 9
stamp="$("$python" -c 'import sys; print(sys.version)') $(cksum < "$lock")"

if [ -f "$dir/stamp" ] && [ "$(cat "$dir/stamp")" = "$stamp" ]; then
    exit 0
fi
echo "building the ryu environment in $dir" >&2
rm -rf "$dir"
"$python" -m venv "$dir"
pip="$dir/bin/python -m pip --quiet --quiet --disable-pip-version-check --no-input"
# ryu's build imports what newer setuptools dropped and does not say what it needs, so its tools come first and it is
# built with them.
grep -E '^(setuptools|wheel|pbr)==' "$lock" > "$dir/build-requirements.txt"
$pip install -r "$dir/build-requirements.txt"
$pip install --no-build-isolation --no-deps -r "$lock"
echo "$stamp" > "$dir/stamp"
