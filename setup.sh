#!/bin/sh
# Brings a fresh Debian 12/13 or Ubuntu 22.04/24.04 to the point where Railbed runs, then does what was asked.
# Every step looks first whether it is needed, so a second call goes straight to the goal.
set -eu
cd "$(dirname "$0")"

packages= # more than every set-up needs
stamp=.venv/.railbed
seldom='/(pip|setuptools|fontTools)/' # packages that no run imports

usage() {
    cat <<'END'
usage: ./setup.sh VERB [ARGUMENT...]

  run     set up, then run experiments/quickstart.yaml (arguments go to `testbed run`)
  test    set up, lint, build with and without sanitizers, run the tests (arguments go to pytest); -m unit as the first
          arguments: only what needs nothing of the machine, in a minute and without root
  explore set up, run the property tests on cases drawn afresh until one fails: explore [MINUTES], default 10
  fuzz    set up, fuzz fabricd with sanitizers: fuzz [SECONDS], default 600
  prove   set up, then prove on this machine: prove load (the same figures beside other fabrics and CPU hogs),
          prove kills (whatever is killed, nothing is left and nothing else is touched), prove parts (who ends or stands
          still of a fabric that is up is named at once, and no command waits for it), prove machines (a sweep on
          machines of which one is killed gives the same, and leaves nothing), prove hashes (the same figures
          before and after a change of the code), prove fastpath (the same with the fast path and without),
          prove predict (predictions of drawn cases against their runs), prove auto (what `auto` takes against all
          others), prove simgrid (predictions of large fabrics against SimGrid, which it fetches), prove recovery (selective repeat against go-back-N and its closed form),
          prove calibrate (a cluster's constants found again in logs that were made of them; rows held back),
          prove controls (congestion controls starve nobody and bound the queue),
          prove gallery (the figures of papers are those that docs/gallery.md shows),
          prove drills (every drill is seen, solved, and healthy where nothing is wrong), prove drill-kills (as kills, of
          drills), prove program-kills (as kills, of RDMA programs: their NIC is clean, and no other's figures change),
          prove programs (what of perftest runs on which clock is what docs/rdma-programs.md says),
          prove packages (checkout, wheel, package and image come to the same figures), prove notebook (docs/notebook.ipynb
          gives in Jupyter what it shows),
          prove drill-leaks (nothing of a drill's truth can be reached), prove drill-replay (played again with
          reads, sleeps and load between it is the same), prove mutants (tests notice when what makes figures changes),
          prove all (each verb's worth of a night, and a table of them); --help says more
  bench   set up, run the benchmarks (arguments go to them)
  gallery set up, run the figures of papers in experiments/papers, or those named, and write docs/gallery.md with its
          pictures: gallery [NAME...]
  lint    set up, check style and types
  docs    set up, make docs/ a site with search, in build/site: docs serve [PORT] also serves it here
  notebook  set up, install Jupyter's kernel, run docs/notebook.ipynb in it and store what comes out
  torch   set up, install PyTorch's wheel for CPUs, for `torch:` steps (docs/pytorch.md)
  ryu     set up, build the environment in which the controller runs on ryu (control: {library: ryu})
  package set up, build a package of this distribution's: build/railbed_VERSION_ARCH.deb
  image   that, and an OCI image with it in a clean root, for docker load, podman load, workers.image:
          build/railbed-VERSION-ARCH.oci.tar
  build   set up only: system packages, .venv, fabricd

Needs root, or sudo for what only root can do.  Afterwards .venv/bin/testbed is the command.
END
}

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { printf 'setup: error: %s\n' "$*" >&2; exit 3; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo -- "$@"
    else
        fail "this needs root, and there is no sudo: $*"
    fi
}

# A checkout that somebody else has made: said before anything is tried.
check_ours() {
    [ -w . ] || fail "$(id -un) cannot write here, and the checkout belongs to $(stat -c %U .): use sudo, or a checkout of your own"
}

# Runs a command whose output is shown only if it fails; every few seconds it is said what it has come to, as PROGRESS
# reads it from the output so far, or for how long it has been at it. WHAT it makes is said with that.
quietly() { # WHAT PROGRESS COMMAND...
    what=$1
    progress=$2
    shift 2
    log=$(mktemp)
    "$@" >"$log" 2>&1 &
    working=$!
    trap 'kill "$working" 2>/dev/null; rm -f "$log"; exit 130' INT TERM HUP
    before=$what
    since=$(date +%s)
    said=$since
    while kill -0 "$working" 2>/dev/null; do
        sleep 0.2
        at=$(date +%s)
        [ $((at - said)) -ge 3 ] || continue # by the clock: on a busy machine a short sleep is long
        said=$at
        now=$("$progress" <"$log")
        now=$what${now:+: $now}
        if [ "$now" = "$before" ]; then say "  $now ($((at - since)) s)"; else say "  $now"; fi
        before=$now
    done
    ended=0
    wait "$working" || ended=$?
    trap - INT TERM HUP
    [ "$ended" -eq 0 ] || tail -n 40 "$log" >&2
    rm -f "$log"
    return "$ended"
}

nothing() { :; }

pip_progress() { # pip says what it has found, then that it unpacks; how far it has come then, the folder says
    awk '/^Collecting /{n++} /^Installing collected/{unpacks=1}
         END {if (unpacks) print "unpacking"; else if (n) print n " found"}' | {
        read -r line || exit 0
        [ "$line" = unpacking ] || { printf '%s\n' "$line"; exit 0; }
        printf '%s unpacked\n' $(($(unpacked) - before_pip))
    }
}

unpacked() { find .venv/lib/python*/site-packages -maxdepth 1 -name '*.dist-info' | wc -l; }

apt_progress() {
    awk '/^Get:/{got++} /^Unpacking /{unpacked++} /^Setting up /{up++}
         END {if (up) print up " of " unpacked " set up"; else if (unpacked) print unpacked " unpacked"
              else if (got) print got " fetched"}'
}

can_be_root() { [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null 2>&1; }

as_root_if_there() { # tests that need root are skipped without it
    if can_be_root; then as_root "$@"; else "$@"; fi
}

# --- system packages -------------------------------------------------------

os_id() {
    # shellcheck disable=SC1091
    (. /etc/os-release 2>/dev/null && printf '%s:%s' "${ID:-unknown}" "${VERSION_ID:-}") || printf 'unknown:'
}

# Ubuntu 22.04's python3 is 3.10; its universe repository has 3.11 too.
choose_python() {
    case "$(os_id)" in
        ubuntu:22.04) python=/usr/bin/python3.11 ;;
        *) python=/usr/bin/python3 ;; # the system's own: a worker container sees it too
    esac
    packages="$(sh install/packages.sh needed useful build | paste -sd ' ' -) $packages"
    packages="$packages ${python##*/} ${python##*/}-venv ${python##*/}-dev"
}

missing_packages() {
    # shellcheck disable=SC2086
    have=$(dpkg-query -W -f '${Package}=${db:Status-Status} ' $packages 2>/dev/null) || true
    for package in $packages; do
        case " $have" in *" $package=installed "*) ;; *) printf ' %s' "$package" ;; esac
    done
}

install_packages() {
    if ! command -v apt-get >/dev/null 2>&1; then
        say "no apt-get here: taking what is installed ($(os_id) is not Debian or Ubuntu)"
        return
    fi
    missing=$(missing_packages)
    [ -n "$missing" ] || return 0
    if ! can_be_root; then
        say "no root and no sudo here, so these packages are not installed:$missing"
        return
    fi
    # shellcheck disable=SC2086
    set -- $missing
    say "installing $# of the distribution's packages:$missing"
    quietly packages apt_progress apt_install "$@" ||
        fail "the packages could not be installed (see above); on Ubuntu they need the universe and -updates repositories"
}

apt_install() { as_root sh testbed/doctor/apt-install.sh "$@"; }

# --- .venv -----------------------------------------------------------------

hash_of() { cat "$@" | sha256sum | cut -d ' ' -f 1; }

make_venv() { # --dev: what tests need, too
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
        fail "Python 3.11 or newer is needed as $python (found: $("$python" --version 2>&1 || echo none))"
    system=$(printf '%s\n' "$PWD" "$(os_id)" "$(uname -m)" "$("$python" --version)" | hash_of - requirements.lock)
    project=$(hash_of pyproject.toml setup.py)
    if [ ! -x .venv/bin/python ] || [ "$system" != "$(cat $stamp-system 2>/dev/null)" ]; then
        say "making .venv, with the $(grep -c == requirements.lock) Python packages of requirements.lock (some 430 MB)"
        quietly "an empty .venv" nothing "$python" -m venv --clear .venv || fail "$python cannot make a virtual environment"
        pip_install requirements.lock
        for site in .venv/lib/python*/site-packages; do sh install/trim.sh "$site"; done
        say "compiling them"
        quietly "compiling" nothing .venv/bin/python -m compileall -q -j 0 -x "$seldom" .venv/lib || true
        printf '%s\n' "$system" >$stamp-system
    fi
    if [ "${1:-}" = --dev ]; then
        dev=$(hash_of requirements-dev.lock)
        if [ "$dev" != "$(cat $stamp-dev 2>/dev/null)" ]; then
            say "adding the $(grep -c == requirements-dev.lock) Python packages of tests, style and types"
            pip_install requirements-dev.lock
            printf '%s\n' "$dev" >$stamp-dev
        fi
    fi
    if [ ! -x .venv/bin/testbed ] || [ "$project" != "$(cat $stamp-project 2>/dev/null)" ]; then
        say "installing the testbed command"
        quietly "the command" nothing .venv/bin/python -m pip install -q --disable-pip-version-check --no-input --no-deps --no-build-isolation -e . ||
            fail "Railbed could not be installed into .venv (see above)"
        for page in hardware/*.[1-9]; do
            [ -f "$page" ] || continue
            mkdir -p ".venv/share/man/man${page##*.}"
            ln -sf "$PWD/$page" ".venv/share/man/man${page##*.}/"
        done
        printf '%s\n' "$project" >$stamp-project
    fi
}

# The packages of a lock, which names all of them: nothing is left to resolve.  Compiling all would take half as long as
# the rest: of what only tests need, those compile what they import.
pip_install() {
    before_pip=$(unpacked) # pip itself, and what an earlier lock has brought
    quietly "Python packages" pip_progress .venv/bin/python -m pip install --disable-pip-version-check --no-input --no-deps --no-compile -r "$1" ||
        fail "the packages of $1 could not be installed (see above)"
}

build_fabricd() { .venv/bin/python -m hardware.build "$@" >/dev/null || fail "fabricd could not be built (see above)"; }

# Python code as it is run: a worker or controller whose environment lets Python write nothing would compile it each time.
# (pytest compiles files of tests by itself, and not to that.)
compile_python() {
    .venv/bin/python -m compileall -q -x '/test_[^/]*$' topologies controllers workloads hardware testbed results ${1:+tests}
}

# Only ever the wheel for CPUs: the ordinary one brings gigabytes for GPUs that nothing here uses.
torch_wheel='torch==2.13.0+cpu'
torch_parts='torch, torch._dynamo, torch.distributed.fsdp, torch.distributed.tensor'
install_torch() {
    .venv/bin/python -c 'import importlib.metadata as m; raise SystemExit(not m.version("torch").startswith("2.13."))' \
        2>/dev/null && return
    say "installing $torch_wheel"
    .venv/bin/python -m pip install -q --disable-pip-version-check --no-input --no-compile "$torch_wheel" >/dev/null 2>&1 ||
        return
    # Of its many files only those that scripts import are compiled: else each script would do so, as above.
    env -u PYTHONDONTWRITEBYTECODE .venv/bin/python -c "import $torch_parts" >/dev/null 2>&1 || true
}

extra() { # NAME: what pyproject.toml has for it, one a line
    .venv/bin/python -c 'import sys, tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"][sys.argv[1]], sep="\n")' "$1"
}

# What runs a notebook (the extra `notebook`), without Jupyter's pages: only `notebook` and `prove notebook` ask for it.
install_notebook() {
    .venv/bin/python -c 'import ipykernel, nbclient' 2>/dev/null && return
    say "installing nbclient and ipykernel"
    # shellcheck disable=SC2046
    quietly "Python packages" nothing .venv/bin/python -m pip install -q --disable-pip-version-check --no-input $(extra notebook | grep -v jupyterlab) ||
        fail "nbclient and ipykernel could not be installed (see above)"
}

# rdma-core's own tests of verbs, with their bindings: unpacked, not installed, as their package would bring udev with it
unpack_verbs_tests() {
    to=$PWD/.venv/rdma-core
    [ ! -d "$to" ] || return 0
    into=$(mktemp -d)
    if (cd "$into" && apt-get download -qq python3-pyverbs && dpkg-deb -x python3-pyverbs_*.deb whole) >/dev/null 2>&1; then
        mv "$into/whole" "$to"
    fi
    rm -rf "$into"
    [ -d "$to" ]
}

build_ryu() { PYTHON=$python controllers/ryu-env.sh || fail "the ryu environment could not be built (see above)"; }

# --- verbs -----------------------------------------------------------------

# fabricd and ryu's environment need nothing of .venv: they are made while pip fetches and unpacks.
set_up() { # --dev: what tests need, too; --sanitize: that, and the build for tests; --test: that, ryu and torch
    started=$(date +%s)
    more=
    [ $# -eq 0 ] || more=--dev
    check_ours
    choose_python
    install_packages
    said_by_cc=$(mktemp)
    said_by_ryu=$(mktemp)
    making_ryu=
    [ -x hardware/bin/fabricd ] || say "compiling fabricd, beside the next steps"
    compile_fabricd "$@" >"$said_by_cc" 2>&1 &
    compiling=$!
    if [ "${1:-}" = --test ]; then
        [ -f .venv-ryu/stamp ] || say "building ryu's environment, likewise"
        build_ryu >"$said_by_ryu" 2>&1 &
        making_ryu=$!
    fi
    make_venv $more
    if [ "${1:-}" = --test ]; then
        begin_lint
        install_torch || say "no $torch_wheel to be had: the tests of PyTorch scripts are skipped"
        unpack_verbs_tests || say "no python3-pyverbs to be had: rdma-core's tests of verbs are skipped"
    fi
    awaited "$compiling" "$said_by_cc" fabricd || fail "fabricd could not be built (see above)"
    [ -z "$making_ryu" ] || awaited "$making_ryu" "$said_by_ryu" "ryu's environment" || exit 3
    rm -f "$said_by_cc" "$said_by_ryu"
    quietly "compiling Railbed's own Python" nothing compile_python $more
    took=$(($(date +%s) - started))
    [ "$took" -lt 10 ] || say "ready after $took s"
}

awaited() { # PROCESS OUTPUT NAME: waits for what runs beside; what it said is shown if it failed
    said=$(date +%s)
    while kill -0 "$1" 2>/dev/null; do
        sleep 0.2
        [ $(($(date +%s) - said)) -ge 3 ] || continue
        said=$(date +%s)
        say "  waiting for $3"
    done
    wait "$1" && return
    cat "$2" >&2
    return 1
}

compile_fabricd() {
    "$python" -m hardware.build >/dev/null || return
    case "${1:-}" in --sanitize | --test) "$python" -m hardware.build --sanitize >/dev/null ;; esac
}

lint() { # what CI finds out about types, nobody asks again
    .venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy ${CI:+--cache-dir=/dev/null}
}

begin_lint() { # on one core: what else is set up, and the tests, which often wait, need not wait for it
    said_by_lint=$(mktemp)
    lint >"$said_by_lint" 2>&1 &
    linting=$!
}

fuzzers() { # what compiles them; Ubuntu 22.04 has their library in clang's own packages
    packages="$packages clang"
    [ "$(os_id)" = ubuntu:22.04 ] || packages="$packages libclang-rt-dev"
}

# Ubuntu has Chromium as a snap only, and brings no headless shell.
browser() {
    for program in chromium-headless-shell chromium google-chrome; do
        ! command -v "$program" >/dev/null 2>&1 || return 0
    done
    case "$(os_id)" in
        debian:*) packages="$packages chromium-headless-shell" ;;
        *) say "no Chromium here: the tests of pages in a browser are skipped" ;;
    esac
}

servers() { # what tests of sweeps on many machines reach
    command -v sshd >/dev/null 2>&1 || [ -x /usr/sbin/sshd ] || packages="$packages openssh-server openssh-client"
}

mpi() { # what a test of programs on a fabric starts
    command -v mpirun >/dev/null 2>&1 || packages="$packages openmpi-bin"
}

rdma_programs() { # that tests run on emulated NICs
    packages="$packages $(sh install/packages.sh rdma | paste -sd ' ' -) libfabric-bin ucx-utils"
}

explore() {
    end=$(($(date +%s) + ${1:-10} * 60))
    property_tests=$(grep -rl --include='test_*.py' '^from hypothesis' tests)
    while [ "$(date +%s)" -lt "$end" ]; do
        # shellcheck disable=SC2086
        as_root env RAILBED_EXPLORE=1 .venv/bin/python -m pytest -q -x $property_tests ||
            fail "found something (above): mend it, and keep the case as an @example of its test"
    done
}

processes() { # of tests: this many more than CPUs, because a test often waits; eight at most
    n=$(($(nproc) + $1))
    [ "$n" -le 8 ] || n=8
    printf '%s' "$n"
}

# As whoever asks, on a laptop too: only root has packages installed here, and others are told what is missing.
unit_tests() {
    check_ours
    choose_python
    if [ "$(id -u)" -eq 0 ]; then
        install_packages
    else
        missing=$(missing_packages 2>/dev/null)
        [ -z "$missing" ] || say "not root, so these packages are not installed:$missing"
    fi
    make_venv --dev
    (build_fabricd) || say "going on without fabricd"
    .venv/bin/python -m pytest -n "$(processes 1)" "$@" tests/unit
}

verb=${1:-help}
[ $# -eq 0 ] || shift
case "$verb" in
    run)
        set_up
        as_root .venv/bin/testbed run experiments/quickstart.yaml "$@"
        ;;
    test)
        if [ "${1:-} ${2:-}" = "-m unit" ]; then
            unit_tests "$@"
            exit
        fi
        fuzzers
        browser
        servers
        mpi
        rdma_programs
        set_up --test
        tested=0
        as_root_if_there .venv/bin/python -m pytest -n "$(processes 5)" "$@" || tested=$?
        linted=0
        wait "$linting" || linted=1
        cat "$said_by_lint"
        rm -f "$said_by_lint"
        [ "$linted" -eq 0 ] || say "lint found mistakes (above)"
        [ "$tested" -eq 0 ] || exit "$tested"
        exit "$linted"
        ;;
    explore)
        set_up --sanitize
        explore "$@"
        ;;
    fuzz)
        fuzzers
        set_up
        .venv/bin/python -m hardware.fuzz --seconds "${1:-600}"
        ;;
    bench)
        packages="$packages valgrind"
        set_up --dev
        as_root .venv/bin/python -m tests.bench "$@"
        ;;
    prove)
        case "${1:-}" in
            load | kills | program-kills | packages | notebook | parts | machines | hashes | fastpath | predict | auto | simgrid | recovery | controls | gallery | drills | drill-kills | drill-leaks | drill-replay | mutants | calibrate | programs | all) ;;
            *) usage >&2; say "prove what? load, kills, program-kills, packages, notebook, parts, machines, hashes, fastpath, predict, auto, simgrid, recovery, controls, gallery, drills, drill-kills, drill-leaks, drill-replay, mutants, calibrate, programs or all"; exit 2 ;;
        esac
        proof=tests.prove_$(printf %s "$1" | tr - _)
        shift
        case "$proof" in
            *_notebook) set_up --dev; install_notebook ;;
            *_packages) packages="$packages mmdebstrap"; set_up --dev ;;
            *) set_up --dev ;;
        esac
        as_root .venv/bin/python -m "$proof" "$@"
        ;;
    notebook)
        set_up --dev
        install_notebook
        as_root .venv/bin/python -m tests.prove_notebook --keep
        ;;
    gallery)
        set_up
        as_root .venv/bin/python -m railbed.gallery "$@"
        ;;
    lint)
        set_up --dev
        lint
        ;;
    docs)
        set_up --dev
        NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --strict -q
        say "the site is in build/site (./setup.sh docs serve: in a browser, with search)"
        case "${1:-}" in
            "") ;;
            serve) exec .venv/bin/python -m http.server --bind 127.0.0.1 -d build/site "${2:-8000}" ;;
            *) usage >&2; say "docs what? docs, or docs serve [PORT]"; exit 2 ;;
        esac
        ;;
    package)
        set_up
        export python
        quietly "the package" nothing sh install/package.sh || fail "the package could not be built (see above)"
        say "apt-get install ./$(ls -t build/*.deb | head -n 1)"
        ;;
    image)
        packages="$packages mmdebstrap"
        set_up
        export python
        [ -n "${1:-}" ] || quietly "the package" nothing sh install/package.sh || fail "the package could not be built (see above)"
        quietly "the image" nothing as_root sh install/image.sh "${1:-$(ls -t build/*.deb | head -n 1)}" ||
            fail "the image could not be built (see above)"
        say "docker load -i $(ls -t build/*.oci.tar | head -n 1)"
        ;;
    torch)
        set_up
        install_torch || fail "there is no $torch_wheel to be had: give pip a place that has it (--extra-index-url, --find-links)"
        ;;
    ryu)
        set_up
        build_ryu
        ;;
    build)
        set_up
        ;;
    help | -h | --help)
        usage
        ;;
    *)
        usage >&2
        say "unknown verb: $verb"
        exit 2
        ;;
esac
