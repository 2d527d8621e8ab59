# The version of a package that is built here, as $version: read by install/package.sh and install/image.sh. That of a
# release is its tag's; what lies before it sorts before it, by date and commit.
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' testbed/__init__.py)
commit=$(git rev-parse --short=8 HEAD 2>/dev/null || cut -c 1-8 results/COMMIT 2>/dev/null || true)
if [ -n "$commit" ] && [ "$(git describe --tags --exact-match --dirty 2>/dev/null || true)" != "v$version" ]; then
    day=$(git log -1 --format=%cs 2>/dev/null | tr -d - || true)
    version=$version~${day:-0}.$commit
    git diff --quiet HEAD 2>/dev/null || version=$version.changed
fi
