#!/bin/sh
# Makes a clean root of this release, from the places that apt has here, with a package of ours and all that it depends
# on: root.sh PACKAGE.deb ROOT [PROGRAM,PROGRAM..]. ROOT is a folder, or ends with .tar. No registry and no container
# engine is needed; root is. Run by install/image.sh, and by `./setup.sh prove packages`.
set -eu
package=$(readlink -f "$1")
root=$2
programs=${3:-}
. /etc/os-release
set --
for list in /etc/apt/sources.list /etc/apt/sources.list.d/"$ID".sources; do
    if [ -s "$list" ]; then set -- "$@" "$list"; fi
done
hook=/usr/share/mmdebstrap/hooks/file-mirror-automount # dpkg sees the package in there, too
mmdebstrap --quiet --variant=apt --hook-dir="$hook" ${programs:+--include="$programs"} --include="$package" "$VERSION_CODENAME" "$root" "$@"
