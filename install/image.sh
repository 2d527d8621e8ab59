#!/bin/sh
# Builds an OCI image out of a package of ours: image.sh PACKAGE.deb. install/root.sh makes a clean root with it,
# install/image.py an image of that. Run by `./setup.sh image`.
set -eu
cd "$(dirname "$0")/.."
arch=$(dpkg --print-architecture)
name=$(basename "$1" .deb)
version=${name#railbed_}
version=${version%_*}
root=build/root.tar
sh install/root.sh "$1" "$root" "$(sh install/packages.sh useful | paste -sd, -)"
.venv/bin/python install/image.py "$root" "build/railbed-$version-$arch.oci.tar" --version "$version" --arch "$arch"
rm -f "$root"
