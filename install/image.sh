#!/bin/sh
# Builds an OCI image out of a package of ours: image.sh PACKAGE.deb. A clean root of this release is made from the places
# that apt has here, with the package and all that it depends on; install/image.py makes an image of it. No registry and no
# container engine is needed; root is. Run by `./setup.sh image`.
set -eu
cd "$(dirname "$0")/.."
package=$(readlink -f "$1")
. /etc/os-release
arch=$(dpkg --print-architecture)
name=$(basename "$package" .deb)
version=${name#railbed_}
version=${version%_*}
root=build/root.tar
for list in /etc/apt/sources.list /etc/apt/sources.list.d/"$ID".sources; do
    if [ -s "$list" ]; then set -- "$@" "$list"; fi
done
shift
programs=$(sh install/packages.sh useful | paste -sd, -)
mmdebstrap --quiet --variant=apt --include="$programs" --include="$package" "$VERSION_CODENAME" "$root" "$@"
.venv/bin/python install/image.py "$root" "build/railbed-$version-$arch.oci.tar" --version "$version" --arch "$arch"
rm -f "$root"
