#!/bin/sh
# Open MPI's mpirun over the hosts of a fabric that is up: mpirun.sh --host h0,h1 PROGRAM...
# OVER=ucx has ranks talk by RDMA (UCX), not by TCP. FABRIC=ID says which fabric, if there are several. docs/programs.md
# says what each option is for.
set -eu
id=${FABRIC:+--fabric $FABRIC}
case ${OVER:-tcp} in
    tcp) over="--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include 10.0.0.0/8" ;;
    ucx) over="--mca pml ucx --mca osc ucx" ;;
    *) echo "mpirun.sh: OVER=$OVER: tcp or ucx" >&2; exit 2 ;;
esac
# shellcheck disable=SC2086
netns=$(testbed status --where --json $id | python3 -c 'import json, sys; print(json.load(sys.stdin)["ranks"][0]["netns"])')
# shellcheck disable=SC2086
exec nsenter --net="$netns" env RES_OPTIONS="timeout:1 attempts:1" mpirun --allow-run-as-root \
    --mca plm_rsh_agent "$(command -v testbed) exec ${id:+$id }--ssh" --mca plm_rsh_no_tree_spawn 1 \
    $over --mca oob_tcp_if_include 10.0.0.0/8 \
    "$@"
