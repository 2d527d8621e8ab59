"""What clusters have printed: nccl-tests, OSU's benchmarks, perftest, NCCL itself, its topology; tables of times."""
