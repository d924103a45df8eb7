/* capi.h: fastfetch from C, through a capsule. The only header here that knows Python.
 *
 *     const ff_capi *ff = ff_import();                      -- NULL with an exception set: not installed, or too old
 *     ff_decode_options options = FF_DECODE_DEFAULTS;
 *     ff_decoded *d = ff->decode(data, n, &options);        -- NULL with an exception set: no memory, bad options
 *     for (size_t i = 0; i < d->blocks_n; i++) use(&d->blocks[i]);
 *     if (d->status != FF_OK) puts(d->error);               -- the good records before the bad batch are in the blocks
 *     ff->release(d);
 *
 * What each call asks of its thread, and how long what lives, is in docs/c-api.md. */
#ifndef FASTFETCH_CAPI_H
#define FASTFETCH_CAPI_H

#include <Python.h>

#include "fastfetch/columns.h"
#include "fastfetch/fetch.h"
#include "fastfetch/record_headers.h"
#include "fastfetch/status.h"

/* What there is keeps its place and its meaning under one version. What is added is added at the end, under a new revision. */
#define FF_CAPI_VERSION 1
#define FF_CAPI_REVISION 1
#define FF_CAPI_CAPSULE "fastfetch.records.capi._C_API"

typedef struct {
    size_t struct_bytes;           /* sizeof(ff_decode_options) as the caller knows it; FF_DECODE_DEFAULTS sets it */
    int64_t position;              /* records below it are passed over; -1: none                               */
    int read_committed;            /* 1: leave out records of the aborted transactions below                   */
    const int64_t *aborted;        /* pairs of producer id and first offset                                    */
    size_t aborted_n;              /* pairs                                                                    */
    int check_crcs;                /* 0: take them as they are                                                 */
    int64_t max_batch_bytes;       /* inflated size of one batch at most                                       */
    int lz4_content_checksum;      /* 0: don't compare it, as Java does not                                    */
    /* revision 1; in all that is added 0 is what it was like before                                           */
    int64_t max_bytes;             /* end between two batches once so much has been made; 0: no such limit     */
    int32_t threads;               /* that share a large input; 0: one                                         */
    int32_t reserved;              /* 0. No padding at the end: a later field must not lie in it               */
} ff_decode_options;

#define FF_DECODE_DEFAULTS {sizeof(ff_decode_options), -1, 0, NULL, 0, 1, 64 << 20, 1, 0, 0, 0}

/* An element of an array: nothing can be added to it. */
typedef struct {
    ff_columns columns;            /* `rows` rows; starts index `data`                                         */
    size_t rows;
    const uint8_t *data;           /* not aligned, nor are keys and values in it                               */
    size_t data_bytes;
    int64_t next_offset;           /* the position once the block is consumed                                  */
} ff_decoded_block;

typedef struct {
    ff_decoded_block *blocks;
    size_t blocks_n;
    int64_t next_offset;           /* where to fetch next, or to stay at after an error; -1: unknown           */
    size_t consumed;               /* bytes of whole good batches                                              */
    int status;                    /* FF_OK, or what is wrong with the batch at `consumed`                     */
    int64_t skip_to;               /* trusted offset behind the bad batch, -1: none                            */
    const char *error;             /* one sentence in UTF-8, NULL if there is none                             */
    void *owner;                   /* keeps all of the above alive                                             */
    /* revision 1                                                                                              */
    int64_t rows;                  /* of all blocks                                                            */
    int64_t batches;               /* seen whole                                                               */
    int64_t records_dropped;       /* repeated an offset or went back                                          */
    int64_t inflated_bytes;        /* produced by decompressors                                                */
} ff_decoded;

typedef struct {
    int version;                   /* FF_CAPI_VERSION                                                          */
    int revision;                  /* of the fastfetch that is installed                                       */
    /* With the GIL; it is released while bytes are decoded. */
    ff_decoded *(*decode)(const uint8_t *data, size_t n, const ff_decode_options *options);
    /* From any thread, with or without the GIL. NULL is allowed. */
    void (*release)(ff_decoded *decoded);

    /* revision 1 */
    /* decode() from any thread, with or without the GIL: it is taken before and after the work. Sets no exception; with NULL, `why` (of
     * `why_bytes` bytes, may be NULL) holds the reason. */
    ff_decoded *(*decode_anywhere)(const uint8_t *data, size_t n, const ff_decode_options *options, char *why, size_t why_bytes);
    /* With the GIL: the columns of a fastfetch.RecordBlock, of its own rows if it is a slice. They are the block's: hold a reference.
     * -1 with a TypeError: it is none. */
    int (*block_of)(PyObject *block, ff_decoded_block *out);
    /* The walk over a fetch response, without the GIL or with it; see fetch.h. An ff_status: FF_OK, FF_BAD_RESPONSE (walk->field and
     * field_at say what), and of open FF_UNSUPPORTED_VERSION. */
    int (*fetch_open)(ff_fetch_walk *walk, const uint8_t *frame, size_t n, int version);
    /* With *more 0 there was none left, and the whole response is proved well formed. */
    int (*fetch_next)(ff_fetch_walk *walk, ff_fetch_partition *partition, int *more);
    /* The next aborted transaction of a partition; call it aborted_count times. `r` is a copy of partition.aborted. */
    void (*fetch_next_aborted)(ff_reader *r, int flexible, int64_t *producer_id, int64_t *first_offset);
    /* After the last partition; 0: no more. */
    int (*fetch_next_endpoint)(ff_fetch_walk *walk, ff_fetch_endpoint *endpoint);
    const char *(*fetch_field_text)(int field);
} ff_capi;

static inline const ff_capi *ff_import(void) {
    /* PyCapsule_Import imports only the first name of the path and takes the others for attributes that are there. */
    PyObject *module = PyImport_ImportModule("fastfetch.records.capi");
    if (module == NULL) return NULL;
    Py_DECREF(module); /* sys.modules keeps it */
    const ff_capi *capi = (const ff_capi *)PyCapsule_Import(FF_CAPI_CAPSULE, 0);
    if (capi && (capi->version != FF_CAPI_VERSION || capi->revision < FF_CAPI_REVISION)) {
        PyErr_Format(PyExc_ImportError, "fastfetch has C API version %d.%d, this program was built for %d.%d", capi->version,
                     capi->revision, FF_CAPI_VERSION, FF_CAPI_REVISION);
        return NULL;
    }
    return capi;
}

#endif
