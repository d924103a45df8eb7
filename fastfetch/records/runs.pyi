# Only for cimport: see runs.pxd.
