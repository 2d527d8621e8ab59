"""`testbed bench`: one collective over a ladder of sizes and several algorithms, with nccl-tests' options and table."""
