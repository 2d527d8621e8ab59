#!/bin/sh
# Takes out of a folder of Python packages what nobody here imports: trim.sh SITE-PACKAGES. That is the packages' own
# tests, and Arrow's servers, clouds and headers: a third of it. `pip install` of a package brings its own back.
set -eu
cd "$1"
for package in matplotlib networkx numpy os_ken pandas pyarrow; do
    [ -d "$package" ] || continue
    find "$package" -type d -name tests -prune -exec rm -rf {} +
done
rm -rf pyarrow/include pyarrow/includes pyarrow/src pyarrow/*.px[di] pyarrow/*.pyx
for part in flight substrait s3 gcs azure hdfs orc _python_flight; do
    rm -f pyarrow/libarrow_"${part#_}".so* pyarrow/libarrow"$part".so* pyarrow/_"$part"*.so pyarrow/_"${part}"fs*.so
done
rm -f pyarrow/_pyarrow_cpp_tests*.so
