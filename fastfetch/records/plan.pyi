# Only for cimport: see plan.pxd.
