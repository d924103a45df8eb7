/* An outside extension in plain C over include/fastfetch/capi.h: no Cython, nothing of fastfetch linked.
 * Compiled by tests/test_packaging.py against an installed fastfetch, warnings being errors. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "fastfetch/capi.h"
#include "fastfetch/layout.h"

static const ff_capi *fastfetch;

/* summary(data, position=-1, aborted=(producer_id, first_offset) or None, max_batch_bytes=64 MiB)
 * -> (offsets, value bytes, nulls, next offset, consumed, status, skip to, error) */
static PyObject *summary(PyObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"data", "position", "aborted", "max_batch_bytes", NULL};
    Py_buffer data;
    long long position = -1, max_batch_bytes = 64 << 20;
    PyObject *aborted = Py_None;
    int64_t pair[2];
    ff_decode_options options = FF_DECODE_DEFAULTS;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*|LOL", names, &data, &position, &aborted, &max_batch_bytes)) return NULL;
    options.position = position;
    options.max_batch_bytes = max_batch_bytes;
    if (aborted != Py_None) {
        long long producer, first;
        if (!PyArg_ParseTuple(aborted, "LL", &producer, &first)) {
            PyBuffer_Release(&data);
            return NULL;
        }
        pair[0] = producer;
        pair[1] = first;
        options.read_committed = 1;
        options.aborted = pair;
        options.aborted_n = 1;
    }

    ff_decoded *decoded = fastfetch->decode(data.buf, (size_t)data.len, &options);
    if (decoded == NULL) {
        PyBuffer_Release(&data);
        return NULL;
    }
    PyObject *offsets = PyList_New(0);
    PyObject *values = PyByteArray_FromStringAndSize(NULL, 0);
    Py_ssize_t nulls = 0;
    int failed = offsets == NULL || values == NULL;
    for (size_t i = 0; i < decoded->blocks_n && !failed; i++) {
        const ff_decoded_block *block = &decoded->blocks[i];
        for (size_t row = 0; row < block->rows && !failed; row++) {
            PyObject *offset = PyLong_FromLongLong(block->columns.offsets[row]);
            failed = offset == NULL || PyList_Append(offsets, offset) < 0;
            Py_XDECREF(offset);
            int32_t length = block->columns.value_lengths[row];
            if (length < 0) {
                nulls++;
                continue;
            }
            Py_ssize_t at = PyByteArray_GET_SIZE(values);
            failed = failed || PyByteArray_Resize(values, at + length) < 0;
            if (!failed) memcpy(PyByteArray_AS_STRING(values) + at, block->data + block->columns.value_starts[row], (size_t)length);
        }
    }
    PyObject *result = NULL;
    if (!failed)
        result = Py_BuildValue("OOnLnsLz", offsets, values, nulls, (long long)decoded->next_offset, (Py_ssize_t)decoded->consumed,
                               ff_status_text(decoded->status), (long long)decoded->skip_to, decoded->error);
    Py_XDECREF(offsets);
    Py_XDECREF(values);
    fastfetch->release(decoded); /* before the input goes: blocks may point into it */
    PyBuffer_Release(&data);
    return result;
}

static PyMethodDef methods[] = {
    {"summary", (PyCFunction)(void (*)(void))summary, METH_VARARGS | METH_KEYWORDS, "Records of a record set, and where it ends."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "plain", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_plain(void) {
    fastfetch = ff_import();
    if (fastfetch == NULL) return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module && PyModule_AddIntConstant(module, "HEADER_BYTES", FF_BATCH_HEADER) < 0) Py_CLEAR(module);
    return module;
}
