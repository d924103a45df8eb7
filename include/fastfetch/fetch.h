/* fetch.h: what the walk over a fetch response says. The functions are in kernels/fetch (cimport them) and in capi.h's table.
 *
 *     ff_fetch_walk walk;
 *     ff_fetch_partition p;
 *     int more;
 *     int status = open(&walk, frame, n, version);                       -- the frame begins with the correlation id
 *     while (status == FF_OK && (status = next(&walk, &p, &more)) == FF_OK && more) use(p.records, p.records_size);
 *
 * Nothing is copied and nothing allocated: numbers, and pointers into the frame. */
#ifndef FASTFETCH_FETCH_H
#define FASTFETCH_FETCH_H

#include "fastfetch/wire.h"

enum { FF_FETCH_OLDEST = 4, FF_FETCH_NEWEST = 18 }; /* versions of Fetch that are read */

/* What is being read, for the message of an error. */
typedef enum {
    FF_FETCH_HEADER,
    FF_FETCH_HEADER_TAGS,
    FF_FETCH_TOPICS,
    FF_FETCH_TOPIC,
    FF_FETCH_PARTITIONS,
    FF_FETCH_PARTITION,
    FF_FETCH_ABORTED,
    FF_FETCH_REPLICA,
    FF_FETCH_RECORDS,
    FF_FETCH_PARTITION_TAGS,
    FF_FETCH_TOPIC_TAGS,
    FF_FETCH_TAGS,
    FF_FETCH_ENDPOINTS
} ff_fetch_field;

typedef struct {
    ff_reader r;
    const uint8_t *data; /* start of the frame                                                        */
    int version;
    int flexible; /* from v12                                                                         */
    /* the head, set by open; 0 where the version has no such field                                   */
    int32_t correlation_id;
    int32_t throttle_time_ms;
    int16_t error_code;
    int32_t session_id;
    /* what is left, and where the walk is; counts are proved to fit into the bytes left              */
    int64_t topics_left;
    int64_t partitions_left;
    int64_t topic_index;     /* of the topic that was read last; -1 before the first                  */
    int64_t partition_index; /* within that topic                                                     */
    const uint8_t *topic;    /* its name, `topic_size` bytes; NULL from v13                           */
    size_t topic_size;
    const uint8_t *topic_id; /* its id, 16 bytes; NULL below v13                                      */
    /* after the last partition                                                                       */
    ff_reader endpoints; /* at the first of `endpoints_left`, all proved well formed                  */
    int64_t endpoints_left;
    /* after a failure: what, and where it starts                                                     */
    int field; /* ff_fetch_field                                                                      */
    size_t field_at;
    int64_t reserved[4]; /* not set; fields of later revisions have their place here                  */
} ff_fetch_walk;

typedef struct {
    int32_t partition;
    int16_t error_code;
    int64_t high_watermark;
    int64_t last_stable_offset;
    int64_t log_start_offset; /* -1 below v5                                                          */
    int64_t aborted_count;    /* -1: null                                                             */
    ff_reader aborted;        /* at the first of them, all proved well formed                         */
    int32_t preferred_read_replica; /* -1: none                                                       */
    int64_t records_size;           /* -1: null                                                       */
    const uint8_t *records;
    /* tagged fields; negative epochs mean that there is none (Java's rule)                           */
    int32_t diverging_epoch;
    int64_t diverging_end_offset;
    int32_t leader_id;
    int32_t leader_epoch;
    int64_t reserved[4]; /* not set                                                                   */
} ff_fetch_partition;

typedef struct {
    int32_t node_id;
    const uint8_t *host;
    int64_t host_size;
    int32_t port;
    const uint8_t *rack;
    int64_t rack_size; /* -1: null                                                                    */
} ff_fetch_endpoint;

#endif
