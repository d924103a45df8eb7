/* Every function and field of include/fastfetch/capi.h, handed to Python as it is: what test_capi.py compares with the Python interface.
 * Compiled by it with warnings being errors, and under the sanitizers where the rest is. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <pthread.h>

#include "fastfetch/capi.h"

static const ff_capi *ff;

static PyObject *bytes_or_none(const uint8_t *at, int64_t n) {
    if (n < 0) Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((const char *)at, (Py_ssize_t)n);
}

/* (offset, timestamp, timestamp type, key, value, headers, leader epoch) of a row. */
static PyObject *row_of(const ff_decoded_block *block, size_t row) {
    const ff_columns *c = &block->columns;
    PyObject *list = PyList_New(0);
    ff_headers headers = ff_headers_of(c, row, block->data, block->data_bytes);
    ff_header header;
    while (list != NULL && ff_next_header(&headers, &header)) {
        PyObject *value = bytes_or_none(header.value, header.value_bytes);
        PyObject *pair = value ? Py_BuildValue("(y#N)", (const char *)header.key, (Py_ssize_t)header.key_bytes, value) : NULL;
        if (pair == NULL || PyList_Append(list, pair) < 0) Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    if (headers.r.bad) {
        PyErr_SetString(PyExc_AssertionError, "the headers of a decoded block are bad");
        Py_CLEAR(list);
    }
    PyObject *key = bytes_or_none(block->data + c->key_starts[row], c->key_lengths[row]);
    PyObject *value = bytes_or_none(block->data + c->value_starts[row], c->value_lengths[row]);
    if (list == NULL || key == NULL || value == NULL || c->header_counts[row] != PyList_GET_SIZE(list)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_AssertionError, "header_counts tells another number");
        Py_XDECREF(list);
        Py_XDECREF(key);
        Py_XDECREF(value);
        return NULL;
    }
    return Py_BuildValue("LLiNNNi", (long long)c->offsets[row], (long long)c->timestamps[row], c->timestamp_types[row], key, value, list,
                         c->leader_epochs[row]);
}

static PyObject *rows_of(const ff_decoded_block *blocks, size_t n) {
    PyObject *rows = PyList_New(0);
    for (size_t i = 0; i < n && rows != NULL; i++)
        for (size_t row = 0; row < blocks[i].rows && rows != NULL; row++) {
            PyObject *one = row_of(&blocks[i], row);
            if (one == NULL || PyList_Append(rows, one) < 0) Py_CLEAR(rows);
            Py_XDECREF(one);
        }
    return rows;
}

static PyObject *result_of(const ff_decoded *d) {
    PyObject *rows = rows_of(d->blocks, d->blocks_n);
    if (rows == NULL) return NULL;
    return Py_BuildValue("{s:N,s:L,s:n,s:s,s:L,s:z,s:L,s:L,s:L,s:L,s:L}", "rows", rows, "next_offset", (long long)d->next_offset,
                         "consumed", (Py_ssize_t)d->consumed, "status", ff_status_text(d->status), "skip_to", (long long)d->skip_to,
                         "error", d->error, "count", (long long)d->rows, "batches", (long long)d->batches, "dropped",
                         (long long)d->records_dropped, "inflated", (long long)d->inflated_bytes, "last",
                         d->blocks_n ? (long long)d->blocks[d->blocks_n - 1].next_offset : -1);
}

/* Options as a caller of another age hands them in: `struct_bytes` of them, with `tail` at the end of what is known here. */
typedef struct {
    ff_decode_options options;
    uint8_t tail[64];
} aged_options;

static int parse(PyObject *args, PyObject *keywords, Py_buffer *data, aged_options *out, int64_t **pairs, int *anywhere,
                 Py_ssize_t *why_bytes) {
    static char *names[] = {"data", "position", "aborted", "check_crcs", "max_batch_bytes", "lz4_content_checksum", "max_bytes", "threads",
                            "struct_bytes", "tail", "anywhere", "why_bytes", NULL};
    long long position = -1, max_batch_bytes = 64 << 20, max_bytes = 0;
    Py_ssize_t struct_bytes = -1;
    int tail = 0;
    PyObject *aborted = Py_None;
    ff_decode_options options = FF_DECODE_DEFAULTS;
    *pairs = NULL;
    memset(out, 0, sizeof *out);
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*|LOpLpLinipn", names, data, &position, &aborted, &options.check_crcs,
                                     &max_batch_bytes, &options.lz4_content_checksum, &max_bytes, &options.threads, &struct_bytes, &tail,
                                     anywhere, why_bytes))
        return -1;
    options.position = position;
    options.max_batch_bytes = max_batch_bytes;
    options.max_bytes = max_bytes;
    if (aborted != Py_None) {
        Py_ssize_t n = PyList_Size(aborted);
        *pairs = n < 0 ? NULL : PyMem_Calloc((size_t)n + 1, 2 * sizeof(int64_t));
        for (Py_ssize_t i = 0; *pairs != NULL && i < n; i++) {
            long long producer, first;
            if (!PyArg_ParseTuple(PyList_GET_ITEM(aborted, i), "LL", &producer, &first)) break;
            (*pairs)[2 * i] = producer;
            (*pairs)[2 * i + 1] = first;
        }
        if (PyErr_Occurred()) {
            PyBuffer_Release(data);
            PyMem_Free(*pairs);
            return -1;
        }
        options.read_committed = 1;
        options.aborted = *pairs;
        options.aborted_n = (size_t)n;
    }
    if (struct_bytes >= 0) options.struct_bytes = (size_t)struct_bytes;
    out->options = options;
    out->tail[0] = (uint8_t)tail;
    return 0;
}

/* decode(data, **options) -> dict; with anywhere=True by decode_anywhere, called without the GIL. */
static PyObject *decode(PyObject *self, PyObject *args, PyObject *keywords) {
    Py_buffer data;
    aged_options aged;
    int64_t *pairs;
    int anywhere = 0;
    char why[201];
    Py_ssize_t why_bytes = 200;
    ff_decoded *d;
    PyObject *result = NULL;
    if (parse(args, keywords, &data, &aged, &pairs, &anywhere, &why_bytes) < 0) return NULL;
    memset(why, '#', sizeof why);
    why[200] = 0;
    if (anywhere) {
        Py_BEGIN_ALLOW_THREADS;
        d = ff->decode_anywhere(data.buf, (size_t)data.len, &aged.options, why_bytes < 0 ? NULL : why, why_bytes < 0 ? 0 : (size_t)why_bytes);
        Py_END_ALLOW_THREADS;
        /* The reason, and what stands behind the buffer that it was given. */
        if (d == NULL) PyErr_Format(PyExc_RuntimeError, "%s|%c", why, why_bytes >= 0 && why_bytes < 200 ? why[why_bytes] : '#');
    } else {
        d = ff->decode(data.buf, (size_t)data.len, &aged.options);
    }
    if (d != NULL) result = result_of(d);
    ff->release(d); /* before the input goes: blocks may point into it. And NULL is allowed. */
    PyBuffer_Release(&data);
    PyMem_Free(pairs);
    return result;
}

/* A thread that Python knows nothing of: decodes again and again, adds the values up. */
typedef struct {
    const uint8_t *data;
    size_t n;
    int times;
    int64_t rows;
    int64_t value_bytes;
    char why[100];
} work;

static void *worker(void *argument) {
    work *w = argument;
    ff_decode_options options = FF_DECODE_DEFAULTS;
    for (int turn = 0; turn < w->times; turn++) {
        ff_decoded *d = ff->decode_anywhere(w->data, w->n, &options, w->why, sizeof w->why);
        if (d == NULL) break;
        for (size_t i = 0; i < d->blocks_n; i++)
            for (size_t row = 0; row < d->blocks[i].rows; row++) w->value_bytes += d->blocks[i].columns.value_lengths[row];
        w->rows += d->rows;
        ff->release(d);
    }
    return NULL;
}

/* threads(data, n, times) -> [(rows, value bytes)] of n threads; the one that calls holds no GIL meanwhile. */
static PyObject *threads(PyObject *self, PyObject *args) {
    enum { MOST = 16 };
    Py_buffer data;
    int n, times, started = 0;
    pthread_t ids[MOST];
    work works[MOST];
    if (!PyArg_ParseTuple(args, "y*ii", &data, &n, &times)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    for (; started < n && started < MOST; started++) {
        works[started] = (work){data.buf, (size_t)data.len, times, 0, 0, ""};
        if (pthread_create(&ids[started], NULL, worker, &works[started]) != 0) break;
    }
    for (int i = 0; i < started; i++) pthread_join(ids[i], NULL);
    Py_END_ALLOW_THREADS;
    PyBuffer_Release(&data);
    PyObject *out = PyList_New(0);
    for (int i = 0; i < started && out != NULL; i++) {
        PyObject *one = Py_BuildValue("LLs", (long long)works[i].rows, (long long)works[i].value_bytes, works[i].why);
        if (one == NULL || PyList_Append(out, one) < 0) Py_CLEAR(out);
        Py_XDECREF(one);
    }
    return out;
}

/* block(RecordBlock) -> (rows, next offset) */
static PyObject *block(PyObject *self, PyObject *object) {
    ff_decoded_block b;
    if (ff->block_of(object, &b) < 0) return NULL;
    PyObject *rows = rows_of(&b, 1);
    return rows == NULL ? NULL : Py_BuildValue("NL", rows, (long long)b.next_offset);
}

static PyObject *name_of(const ff_fetch_walk *walk) {
    if (walk->topic_id != NULL) return PyBytes_FromStringAndSize((const char *)walk->topic_id, 16);
    return PyUnicode_FromStringAndSize((const char *)walk->topic, (Py_ssize_t)walk->topic_size);
}

static PyObject *partition_of(const ff_fetch_walk *walk, const ff_fetch_partition *p) {
    PyObject *aborted = p->aborted_count < 0 ? Py_NewRef(Py_None) : PyList_New(0);
    ff_reader r = p->aborted;
    for (int64_t i = 0; i < p->aborted_count && aborted != NULL; i++) {
        int64_t producer_id, first_offset;
        ff->fetch_next_aborted(&r, walk->flexible, &producer_id, &first_offset);
        PyObject *pair = Py_BuildValue("LL", (long long)producer_id, (long long)first_offset);
        if (pair == NULL || PyList_Append(aborted, pair) < 0) Py_CLEAR(aborted);
        Py_XDECREF(pair);
    }
    PyObject *name = name_of(walk), *records = bytes_or_none(p->records, p->records_size);
    if (aborted == NULL || name == NULL || records == NULL) {
        Py_XDECREF(aborted);
        Py_XDECREF(name);
        Py_XDECREF(records);
        return NULL;
    }
    return Py_BuildValue("NihLLLNiN(iL)(ii)", name, p->partition, p->error_code, (long long)p->high_watermark,
                         (long long)p->last_stable_offset, (long long)p->log_start_offset, aborted, p->preferred_read_replica, records,
                         p->diverging_epoch, (long long)p->diverging_end_offset, p->leader_id, p->leader_epoch);
}

/* fetch(frame, version) -> ((correlation id, throttle, error, session), partitions, endpoints), or (status, field, byte) */
static PyObject *fetch(PyObject *self, PyObject *args) {
    Py_buffer frame;
    int version, more = 1;
    ff_fetch_walk walk;
    ff_fetch_partition p;
    ff_fetch_endpoint e;
    if (!PyArg_ParseTuple(args, "y*i", &frame, &version)) return NULL;
    PyObject *partitions = PyList_New(0), *endpoints = PyList_New(0), *result = NULL;
    int status = ff->fetch_open(&walk, frame.buf, (size_t)frame.len, version);
    while (status == FF_OK && partitions != NULL) {
        status = ff->fetch_next(&walk, &p, &more);
        if (status != FF_OK || !more) break;
        PyObject *one = partition_of(&walk, &p);
        if (one == NULL || PyList_Append(partitions, one) < 0) Py_CLEAR(partitions);
        Py_XDECREF(one);
    }
    while (status == FF_OK && endpoints != NULL && ff->fetch_next_endpoint(&walk, &e)) {
        PyObject *rack = e.rack_size < 0 ? Py_NewRef(Py_None) : PyUnicode_FromStringAndSize((const char *)e.rack, (Py_ssize_t)e.rack_size);
        PyObject *one = rack ? Py_BuildValue("is#iN", e.node_id, (const char *)e.host, (Py_ssize_t)e.host_size, e.port, rack) : NULL;
        if (one == NULL || PyList_Append(endpoints, one) < 0) Py_CLEAR(endpoints);
        Py_XDECREF(one);
    }
    if (partitions != NULL && endpoints != NULL) {
        if (status == FF_OK)
            result = Py_BuildValue("(iihi)OO", walk.correlation_id, walk.throttle_time_ms, walk.error_code, walk.session_id, partitions, endpoints);
        else
            result = Py_BuildValue("ssn", ff_status_text(status), ff->fetch_field_text(walk.field), (Py_ssize_t)walk.field_at);
    }
    Py_XDECREF(partitions);
    Py_XDECREF(endpoints);
    PyBuffer_Release(&frame);
    return result;
}

static PyMethodDef methods[] = {
    {"decode", (PyCFunction)(void (*)(void))decode, METH_VARARGS | METH_KEYWORDS, NULL},
    {"threads", threads, METH_VARARGS, NULL},
    {"block", block, METH_O, NULL},
    {"fetch", fetch, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "probe", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_probe(void) {
    ff = ff_import();
    if (ff == NULL) return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module && (PyModule_AddIntConstant(module, "OPTIONS_BYTES", sizeof(ff_decode_options)) < 0 ||
                   PyModule_AddIntConstant(module, "OLDEST_OPTIONS_BYTES", offsetof(ff_decode_options, max_bytes)) < 0))
        Py_CLEAR(module);
    return module;
}
