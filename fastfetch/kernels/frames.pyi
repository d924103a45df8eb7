# Only for cimport: see frames.pxd.
