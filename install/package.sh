#!/bin/sh
# Builds a package of Debian's or Ubuntu's from this checkout, for the release of it that runs here: package.sh. Run by
# `./setup.sh package`, after set-up. What a run needs of Python lies in an environment of its own below
# /usr/lib/railbed, as the distribution's versions are too old for it; its compiled parts are for this release's Python.
set -eu
cd "$(dirname "$0")/.."
root=$PWD/build/package
home=/usr/lib/railbed
. install/version.sh
arch=$(dpkg --print-architecture)
made=build/railbed_${version}_$arch.deb

rm -rf "$root" build/lib build/wheel
mkdir -p "$root/usr/bin" "$root/DEBIAN"
"$python" -m venv --without-pip --symlinks "$root$home"
inside=$root$home/bin/python
pip() { .venv/bin/python -m pip "$@"; }
pip --python "$inside" install -q --disable-pip-version-check --no-input --no-deps --no-compile -r requirements.lock
pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w build/wheel .
pip --python "$inside" install -q --disable-pip-version-check --no-deps --no-index --no-compile build/wheel/*.whl
site=$(echo "$root$home"/lib/python3*/site-packages)
sh install/trim.sh "$site"
find "$root" -name __pycache__ -prune -exec rm -rf {} +

# The environment as it will lie there: commands but testbed's own are not offered.
sed -i "s#$root##g; s#^command = .*#command = $python -m venv $home#" "$root$home/pyvenv.cfg"
find "$root$home/bin" -type f ! -name testbed -delete
sed -i "1s#.*#\#!$home/bin/python#" "$root$home/bin/testbed"
ln -s ../lib/railbed/bin/testbed "$root/usr/bin/testbed"
find "$site" -name direct_url.json -delete
.venv/bin/python -m compileall -q -f -x '/(pip|setuptools|fontTools)/' -s "$root" -p / --invalidation-mode unchecked-hash "$site" >/dev/null || true
mkdir -p "$root/usr/share/man" "$root/usr/share/doc/railbed" "$root/usr/share/bash-completion/completions"
cp -r "$root$home/share/man/." "$root/usr/share/man"
rm -rf "$root$home/share/man"
find "$root/usr/share/man" -type f -exec gzip -9n {} +
gzip -9nc CHANGELOG.md >"$root/usr/share/doc/railbed/changelog.gz"
.venv/bin/testbed completion bash >"$root/usr/share/bash-completion/completions/testbed"

libraries() { # packages of the libraries that our programs are linked with, no older than here
    find "$site/hardware/bin" -type f -exec ldd {} + 2>/dev/null | awk '$2 == "=>" {print $3}' | sort -u | while read -r file; do
        case "$file" in "$root"*) continue ;; esac # of our own
        name=$(dpkg-query -S "$(readlink -f "$file")" 2>/dev/null || dpkg-query -S "$file")
        name=${name%%:*}
        printf '%s (>= %s)\n' "$name" "$(dpkg-query -W -f '${Version}' "$name:$arch" | sed 's/-[^-]*$//')"
    done | sort -u | paste -sd, - | sed 's/,/, /g'
}
minor=$("$python" -c 'import sys; print(sys.version_info.minor)')
packages() { sh install/packages.sh "$@" | paste -sd, - | sed 's/,/, /g'; }
cat >"$root/DEBIAN/control" <<CONTROL
Package: railbed
Version: $version
Architecture: $arch
Maintainer: Railbed <railbed@localhost>
Section: net
Priority: optional
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f 1)
Depends: python3 (>= 3.$minor), python3 (<< 3.$((minor + 1))), $(libraries), $(packages needed)
Recommends: $(packages useful rdma)
Description: AI-fabric testbed in a box
 Emulates a GPU cluster's network on one machine: Open vSwitch under a
 controller, emulated NICs, cables and switch buffers with an exact clock, real
 collective traffic, offloads into switches and NICs, faults and drills.
CONTROL
dpkg-deb --root-owner-group -Zzstd -z9 --build "$root" "$made" >/dev/null
rm -rf "$root" build/wheel
echo "$made"
