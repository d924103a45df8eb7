# Only for cimport: see records.pxd.
