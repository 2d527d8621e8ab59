#!/bin/sh
# Open MPI's mpirun over the hosts of a fabric that is up: mpirun.sh --host h0,h1 PROGRAM...
# FABRIC=ID says which, if there are several. docs/programs.md says what each option is for.
set -eu
id=${FABRIC:+--fabric $FABRIC}
# shellcheck disable=SC2086
netns=$(testbed status --where --json $id | python3 -c 'import json, sys; print(json.load(sys.stdin)["ranks"][0]["netns"])')
exec nsenter --net="$netns" env RES_OPTIONS="timeout:1 attempts:1" mpirun --allow-run-as-root \
    --mca plm_rsh_agent "$(command -v testbed) exec ${id:+$id }--ssh" --mca plm_rsh_no_tree_spawn 1 \
    --mca pml ob1 --mca btl tcp,self \
    --mca btl_tcp_if_include 10.0.0.0/8 --mca oob_tcp_if_include 10.0.0.0/8 \
    "$@"
