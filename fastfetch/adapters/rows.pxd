"""Blocks into the record objects of other clients."""

from fastfetch.records.block cimport RecordBlock


cdef object checksum(RecordBlock block, Py_ssize_t row)
