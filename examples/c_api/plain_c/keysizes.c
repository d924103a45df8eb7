/* Bytes of records by hash of their key, in plain C over fastfetch/capi.h: finds the keys that make a topic large. See README.md. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "fastfetch/capi.h"

static const ff_capi *ff;

/* FNV-1a, 64 bits. A null key is hashed as no bytes. */
static uint64_t hash_of(const uint8_t *key, int32_t n) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (int32_t i = 0; i < n; i++) hash = (hash ^ key[i]) * 0x100000001b3u;
    return hash;
}

/* Needs no GIL: whoever calls holds what the columns belong to. */
static void add(int64_t *totals, size_t buckets, const ff_decoded_block *block) {
    const ff_columns *c = &block->columns;
    for (size_t row = 0; row < block->rows; row++) {
        int32_t key = c->key_lengths[row], value = c->value_lengths[row]; /* -1: null */
        uint64_t bucket = hash_of(block->data + c->key_starts[row], key) % buckets;
        totals[bucket] += (key > 0 ? key : 0) + (value > 0 ? value : 0);
    }
}

/* A writable buffer of int64: array.array("q"), a NumPy array. */
static int take_totals(PyObject *object, Py_buffer *totals) {
    if (PyObject_GetBuffer(object, totals, PyBUF_WRITABLE | PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) < 0) return -1;
    int is_int64 = totals->itemsize == 8 && totals->format && (strcmp(totals->format, "q") == 0 || strcmp(totals->format, "l") == 0);
    if (is_int64 && totals->len > 0) return 0;
    PyErr_SetString(PyExc_TypeError, "totals must be a writable array of one or more int64");
    PyBuffer_Release(totals);
    return -1;
}

static PyObject *add_block(PyObject *self, PyObject *args) {
    PyObject *object, *block;
    Py_buffer totals;
    ff_decoded_block columns;
    if (!PyArg_ParseTuple(args, "OO", &object, &block) || ff->block_of(block, &columns) < 0) return NULL;
    if (take_totals(object, &totals) < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS; /* `args` holds the block */
    add(totals.buf, (size_t)totals.len / 8, &columns);
    Py_END_ALLOW_THREADS;
    PyBuffer_Release(&totals);
    Py_RETURN_NONE;
}

static PyObject *add_bytes(PyObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"totals", "data", "position", NULL};
    PyObject *object, *result = NULL;
    Py_buffer totals, data;
    long long position = -1;
    ff_decode_options options = FF_DECODE_DEFAULTS;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "Oy*|L", names, &object, &data, &position)) return NULL;
    options.position = position;
    if (take_totals(object, &totals) == 0) {
        ff_decoded *decoded = ff->decode(data.buf, (size_t)data.len, &options);
        if (decoded != NULL) {
            Py_BEGIN_ALLOW_THREADS;
            for (size_t i = 0; i < decoded->blocks_n; i++) add(totals.buf, (size_t)totals.len / 8, &decoded->blocks[i]);
            Py_END_ALLOW_THREADS;
            result = Py_BuildValue("LLz", (long long)decoded->rows, (long long)decoded->next_offset, decoded->error);
            ff->release(decoded); /* before the input goes: blocks may point into it */
        }
        PyBuffer_Release(&totals);
    }
    PyBuffer_Release(&data);
    return result;
}

static PyObject *bucket(PyObject *self, PyObject *args) {
    Py_buffer key;
    Py_ssize_t buckets;
    if (!PyArg_ParseTuple(args, "y*n", &key, &buckets)) return NULL;
    uint64_t hash = hash_of(key.buf, (int32_t)key.len);
    PyBuffer_Release(&key);
    if (buckets < 1) return PyErr_Format(PyExc_ValueError, "buckets must be at least 1; got %zd", buckets);
    return PyLong_FromUnsignedLongLong(hash % (uint64_t)buckets);
}

static PyMethodDef methods[] = {
    {"add_block", add_block, METH_VARARGS, "add_block(totals, block): add the sizes of a fastfetch.RecordBlock's records."},
    {"add_bytes", (PyCFunction)(void (*)(void))add_bytes, METH_VARARGS | METH_KEYWORDS,
     "add_bytes(totals, data, position=-1) -> (records, next offset or -1, error or None)"},
    {"bucket", bucket, METH_VARARGS, "bucket(key, buckets): where a key is counted."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "keysizes", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_keysizes(void) {
    ff = ff_import();
    return ff == NULL ? NULL : PyModule_Create(&definition);
}
