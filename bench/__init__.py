"""Benchmarks: fastfetch beside a C floor and beside its peers. `make bench` runs figures.py; nothing here is installed."""
