# Only for cimport: see snappy.pxd.
