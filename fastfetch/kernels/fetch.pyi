"""The walk over one fetch response: a C interface only, see fetch.pxd."""
