/* status.h: what every kernel returns. Kernels never raise; the Python edge turns a status into an exception. Plain C99. */
#ifndef FASTFETCH_STATUS_H
#define FASTFETCH_STATUS_H

typedef enum {
    FF_OK = 0,
    FF_PARTIAL,             /* the bytes end inside an entry: normal at the end of a fetch, not an error         */
    /* framing: nothing about the entry can be trusted                                                            */
    FF_BAD_LENGTH,          /* declared length below the format's minimum, or negative                           */
    FF_BAD_MAGIC,           /* negative magic                                                                    */
    FF_UNSUPPORTED_MAGIC,   /* magic above 2                                                                     */
    FF_BAD_OFFSET,          /* base offset or last offset delta negative, or their sum beyond int64              */
    FF_BAD_CRC,
    /* the CRC is right: the end of the batch can be trusted                                                      */
    FF_BAD_CODEC,           /* codec id that does not exist in this format                                       */
    FF_MISSING_CODEC,       /* codec id known, its library is not there                                          */
    FF_BAD_INFLATE,         /* payload does not decompress, or not to its end                                    */
    FF_TOO_LARGE,           /* inflates beyond the caller's limit                                                */
    FF_BAD_COUNT,           /* record count negative or more than the bytes could hold                           */
    FF_BAD_RECORD_LENGTH,   /* record length negative or beyond the payload                                      */
    FF_BAD_RECORD,          /* a record's fields do not fill its length exactly                                  */
    FF_BAD_HEADERS,         /* header count negative or more than the record could hold, or a bad header         */
    FF_BAD_OFFSET_DELTA,    /* negative or above the batch's last offset delta                                   */
    FF_MISSING_RECORDS,     /* the payload ends before the declared number of records                            */
    FF_LEFT_OVER,           /* bytes remain after the declared number of records                                 */
    FF_BAD_MARKER,          /* control record whose key is no marker                                             */
    FF_BAD_MESSAGE,         /* legacy message whose fields do not fit                                            */
    FF_BAD_WRAPPER,         /* legacy wrapper: empty, nested, of another magic, or cut                           */
    FF_BAD_RESPONSE,        /* a fetch response that does not follow its schema                                  */
    /* not about the bytes                                                                                        */
    FF_OUTPUT_FULL,         /* the output buffer is too small: grow it and call again                            */
    FF_NO_MEMORY,
    FF_RAISED,              /* a Python codec provider raised; the exception is set                              */
    FF_UNSUPPORTED_VERSION  /* a version of the fetch response that is not read                                  */
} ff_status;

static inline const char *ff_status_text(int status) {
    switch (status) {
    case FF_OK: return "ok";
    case FF_PARTIAL: return "partial batch";
    case FF_BAD_LENGTH: return "batch length out of range";
    case FF_BAD_MAGIC: return "negative magic";
    case FF_UNSUPPORTED_MAGIC: return "unsupported magic";
    case FF_BAD_OFFSET: return "offset out of range";
    case FF_BAD_CRC: return "CRC mismatch";
    case FF_BAD_CODEC: return "codec does not exist";
    case FF_MISSING_CODEC: return "codec library is missing";
    case FF_BAD_INFLATE: return "payload does not decompress";
    case FF_TOO_LARGE: return "batch inflates beyond the limit";
    case FF_BAD_COUNT: return "record count out of range";
    case FF_BAD_RECORD_LENGTH: return "record length out of range";
    case FF_BAD_RECORD: return "record fields do not fill its length";
    case FF_BAD_HEADERS: return "bad record headers";
    case FF_BAD_OFFSET_DELTA: return "offset delta out of range";
    case FF_MISSING_RECORDS: return "fewer records than declared";
    case FF_LEFT_OVER: return "bytes after the last record";
    case FF_BAD_MARKER: return "malformed control record";
    case FF_BAD_MESSAGE: return "malformed message";
    case FF_BAD_WRAPPER: return "malformed compressed message set";
    case FF_BAD_RESPONSE: return "malformed fetch response";
    case FF_OUTPUT_FULL: return "output buffer full";
    case FF_NO_MEMORY: return "out of memory";
    case FF_RAISED: return "exception raised";
    case FF_UNSUPPORTED_VERSION: return "unsupported version";
    default: return "unknown status";
    }
}

#endif
