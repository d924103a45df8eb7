# Only for cimport: see containers.pxd.
