# Only for cimport: see system_codecs.pxd.
