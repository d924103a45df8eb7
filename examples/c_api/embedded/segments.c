/* Counts the records of segment files with threads of its own. Python is embedded for fastfetch, and no thread but the first one knows it.
 * See README.md. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fastfetch/capi.h"

static const ff_capi *ff;

typedef struct {
    char **files;
    int files_n;
    atomic_int next; /* the first file that nobody has taken yet */
    atomic_int failed;
} job;

static void count(const char *file, const uint8_t *data, size_t n, atomic_int *failed) {
    int64_t records = 0, bytes = 0;
    char why[300];
    ff_decode_options options = FF_DECODE_DEFAULTS;
    options.max_bytes = 16 << 20; /* of columns and inflated bytes at a time */
    for (size_t at = 0; at < n;) {
        ff_decoded *d = ff->decode_anywhere(data + at, n - at, &options, why, sizeof why);
        if (d == NULL) {
            fprintf(stderr, "%s: %s\n", file, why);
            *failed = 1;
            return;
        }
        for (size_t i = 0; i < d->blocks_n; i++)
            for (size_t row = 0; row < d->blocks[i].rows; row++) {
                int32_t length = d->blocks[i].columns.value_lengths[row];
                bytes += length > 0 ? length : 0;
            }
        records += d->rows;
        if (d->status != FF_OK) {
            fprintf(stderr, "%s: %s\n", file, d->error);
            *failed = 1;
        }
        int is_over = d->status != FF_OK || d->consumed == 0; /* bad, or a batch that is cut off */
        at += d->consumed;
        options.position = d->next_offset;
        ff->release(d);
        if (is_over) break;
    }
    printf("%s %lld %lld\n", file, (long long)records, (long long)bytes);
}

static void *worker(void *argument) {
    job *j = argument;
    for (int i; (i = atomic_fetch_add(&j->next, 1)) < j->files_n;) {
        const char *file = j->files[i];
        struct stat found;
        int fd = open(file, O_RDONLY);
        if (fd < 0 || fstat(fd, &found) < 0) {
            perror(file);
            j->failed = 1;
        } else if (found.st_size > 0) {
            size_t n = (size_t)found.st_size;
            void *data = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
            if (data == MAP_FAILED) {
                perror(file);
                j->failed = 1;
            } else {
                count(file, data, n, &j->failed);
                munmap(data, n);
            }
        } else {
            printf("%s 0 0\n", file);
        }
        if (fd >= 0) close(fd);
    }
    return NULL;
}

static int start_python(void) {
    PyConfig config;
    PyConfig_InitPythonConfig(&config);
    config.install_signal_handlers = 0; /* Ctrl-C ends the program */
    PyStatus status = PyConfig_SetString(&config, &config.program_name, PYTHON);
    if (!PyStatus_Exception(status)) status = Py_InitializeFromConfig(&config);
    PyConfig_Clear(&config);
    if (PyStatus_Exception(status)) {
        fprintf(stderr, "Python does not start: %s\n", status.err_msg);
        return -1;
    }
    ff = ff_import();
    if (ff == NULL) PyErr_Print();
    return ff == NULL ? -1 : 0;
}

int main(int argc, char **argv) {
    enum { MOST = 64 };
    pthread_t threads[MOST];
    int wanted = argc > 2 ? atoi(argv[1]) : 0, started = 0;
    if (wanted < 1 || wanted > MOST) {
        fprintf(stderr, "usage: %s THREADS FILE.log...   (1 to %d threads)\n", argv[0], MOST);
        return 2;
    }
    if (start_python() < 0) return 1;
    PyThreadState *main_thread = PyEval_SaveThread(); /* the others need the GIL, for moments */
    job j = {.files = argv + 2, .files_n = argc - 2};
    while (started < wanted && pthread_create(&threads[started], NULL, worker, &j) == 0) started++;
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    PyEval_RestoreThread(main_thread);
    if (Py_FinalizeEx() < 0) return 1;
    if (started == 0) fprintf(stderr, "no thread could be started\n");
    return started == 0 || j.failed;
}
