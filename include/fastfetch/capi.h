/* capi.h: decode a record set from C, through a capsule. The only header here that knows Python.
 *
 *     const ff_capi *ff = ff_import();                      -- NULL with an exception set: not installed, or another ABI
 *     ff_decode_options options = FF_DECODE_DEFAULTS;
 *     ff_decoded *d = ff->decode(data, n, &options);        -- NULL with an exception set: no memory, bad options
 *     for (size_t i = 0; i < d->blocks_n; i++) use(&d->blocks[i]);
 *     if (d->status != FF_OK) puts(d->error);               -- the good records before the bad batch are in the blocks
 *     ff->release(d);
 *
 * All calls need the GIL; decode releases it while it works. The input must stay unchanged until release. */
#ifndef FASTFETCH_CAPI_H
#define FASTFETCH_CAPI_H

#include <Python.h>

#include "fastfetch/columns.h"
#include "fastfetch/status.h"

#define FF_CAPI_VERSION 1
#define FF_CAPI_CAPSULE "fastfetch.records.capi._C_API"

typedef struct {
    size_t struct_bytes;           /* sizeof(ff_decode_options): later versions add fields at the end          */
    int64_t position;              /* records below it are passed over; -1: none                               */
    int read_committed;            /* 1: leave out records of the aborted transactions below                   */
    const int64_t *aborted;        /* pairs of producer id and first offset                                    */
    size_t aborted_n;              /* pairs                                                                    */
    int check_crcs;
    int64_t max_batch_bytes;       /* inflated size of one batch                                               */
    int lz4_content_checksum;
} ff_decode_options;

#define FF_DECODE_DEFAULTS {sizeof(ff_decode_options), -1, 0, NULL, 0, 1, 64 << 20, 1}

typedef struct {
    ff_columns columns;            /* `rows` rows; starts index `data`                                         */
    size_t rows;
    const uint8_t *data;
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
    const char *error;             /* one sentence, NULL if there is none                                      */
    void *owner;                   /* keeps all of the above alive                                             */
} ff_decoded;

typedef struct {
    int version;                   /* FF_CAPI_VERSION                                                          */
    ff_decoded *(*decode)(const uint8_t *data, size_t n, const ff_decode_options *options);
    void (*release)(ff_decoded *decoded);
} ff_capi;

static inline const ff_capi *ff_import(void) {
    /* PyCapsule_Import imports only the first name of the path and takes the others for attributes that are there. */
    PyObject *module = PyImport_ImportModule("fastfetch.records.capi");
    if (module == NULL) return NULL;
    Py_DECREF(module); /* sys.modules keeps it */
    const ff_capi *capi = (const ff_capi *)PyCapsule_Import(FF_CAPI_CAPSULE, 0);
    if (capi && capi->version != FF_CAPI_VERSION) {
        PyErr_Format(PyExc_ImportError, "fastfetch has C API version %d, this program was built for %d", capi->version, FF_CAPI_VERSION);
        return NULL;
    }
    return capi;
}

#endif
