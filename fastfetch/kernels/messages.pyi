# Only for cimport: see messages.pxd.
