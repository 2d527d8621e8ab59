#!/bin/sh
# The distribution's packages that Railbed uses, one a line: packages.sh LIST.., of needed (no run without them), useful
# (what asks for them does not work without them), rdma (programs that run on emulated NICs), build (to compile it). Read
# by setup.sh and install/package.sh, which have no Python yet; testbed/doctor says which check needs which.
for list in "$@"; do
    case "$list" in
        needed) echo openvswitch-switch mininet runc tini iproute2 net-tools util-linux procps ;;
        useful) echo ethtool tcpdump iperf3 tshark iputils-ping gcc libc6-dev ;;
        rdma) echo perftest ibverbs-utils rdmacm-utils ;;
        build) echo gcc libc6-dev libjansson-dev libdeflate-dev libibverbs-dev librdmacm-dev ca-certificates ;;
        *) echo "packages.sh: needed, useful, rdma or build?" >&2; exit 2 ;;
    esac
done | tr ' ' '\n' | awk '!seen[$0]++'
