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
for part in flight python_flight s3; do rm -f pyarrow/libarrow_"$part".so*; done
for part in flight s3fs gcsfs azurefs hdfs orc dataset_orc pyarrow_cpp_tests; do rm -f pyarrow/_"$part".*.so; done
for name in pyarrow/libarrow_python*.so.*.*; do # one library under three names, of which the middle one is asked for
    if [ -f "$name" ]; then rm -f "$name" "${name%.so.*}.so"; fi
done
