"""What another Cython extension may cimport: add `fastfetch.get_include()` to its include path.

    from fastfetch.kernels.wire cimport *                  # headers: reader, varints, layout, CRC-32C, columns, statuses
    from fastfetch.kernels.frames cimport ff_entry, ff_next_entry, ff_entry_crc
    from fastfetch.kernels.records cimport ff_walk, ff_walk_records
    from fastfetch cimport RecordBlock, Record             # fields of decoded blocks at C level
"""

from fastfetch.records.block cimport RecordBlock
from fastfetch.records.record cimport Record
