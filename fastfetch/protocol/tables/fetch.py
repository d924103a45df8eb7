"""Fetch (1): records.

v4 isolation levels and record batches, v5 log start offset, v7 sessions (KIP-227), v9 leader epochs (KIP-320), v11 racks
(KIP-392), v12 diverging epochs, v13 topic ids instead of names (KIP-516), v15 the replica id becomes a tag, v16 node endpoints
(KIP-951), v17 and v18 add what only followers send. The client reads responses with `fastfetch.records.read_fetch_response`,
which copies nothing; this table writes them in the tests' broker and checks that reader.
"""

from fastfetch.protocol.schema import Api, F

FETCH = Api(
    key=1,
    name="Fetch",
    min_version=4,
    max_version=18,
    flexible_from=12,
    request=(
        F("cluster_id", "string", "12+", nullable="12+", tag=0, default=None, ignorable=True),
        F("replica_id", "int32", "0-14", default=-1),
        F("replica_state", "struct", "15+", tag=1, fields=(
            F("replica_id", "int32", "15+", default=-1),
            F("replica_epoch", "int64", "15+", default=-1),
        )),
        F("max_wait_ms", "int32", "0+"),
        F("min_bytes", "int32", "0+"),
        F("max_bytes", "int32", "3+", default=0x7FFFFFFF, ignorable=True),
        F("isolation_level", "int8", "4+", ignorable=True),
        F("session_id", "int32", "7+", ignorable=True),
        F("session_epoch", "int32", "7+", default=-1, ignorable=True),
        F("topics", "[]struct", "0+", fields=(
            F("topic", "string", "0-12", ignorable=True),
            F("topic_id", "uuid", "13+", ignorable=True),
            F("partitions", "[]struct", "0+", fields=(
                F("partition", "int32", "0+"),
                F("current_leader_epoch", "int32", "9+", default=-1, ignorable=True),
                F("fetch_offset", "int64", "0+"),
                F("last_fetched_epoch", "int32", "12+", default=-1),
                F("log_start_offset", "int64", "5+", default=-1, ignorable=True),
                F("partition_max_bytes", "int32", "0+"),
                F("replica_directory_id", "uuid", "17+", tag=0, ignorable=True),
                F("high_watermark", "int64", "18+", tag=1, default=2**63 - 1, ignorable=True),
            )),
        )),
        F("forgotten_topics_data", "[]struct", "7+", fields=(
            F("topic", "string", "7-12", ignorable=True),
            F("topic_id", "uuid", "13+", ignorable=True),
            F("partitions", "[]int32", "7+"),
        )),
        F("rack_id", "string", "11+", ignorable=True),
    ),
    response=(
        F("throttle_time_ms", "int32", "1+", ignorable=True),
        F("error_code", "int16", "7+", ignorable=True),
        F("session_id", "int32", "7+"),
        F("responses", "[]struct", "0+", fields=(
            F("topic", "string", "0-12", ignorable=True),
            F("topic_id", "uuid", "13+", ignorable=True),
            F("partitions", "[]struct", "0+", fields=(
                F("partition_index", "int32", "0+"),
                F("error_code", "int16", "0+"),
                F("high_watermark", "int64", "0+"),
                F("last_stable_offset", "int64", "4+", default=-1, ignorable=True),
                F("log_start_offset", "int64", "5+", default=-1, ignorable=True),
                F("diverging_epoch", "struct", "12+", tag=0, fields=(
                    F("epoch", "int32", "12+", default=-1),
                    F("end_offset", "int64", "12+", default=-1),
                )),
                F("current_leader", "struct", "12+", tag=1, fields=(
                    F("leader_id", "int32", "12+", default=-1),
                    F("leader_epoch", "int32", "12+", default=-1),
                )),
                F("snapshot_id", "struct", "12+", tag=2, fields=(
                    F("end_offset", "int64", "0+", default=-1),
                    F("epoch", "int32", "0+", default=-1),
                )),
                F("aborted_transactions", "[]struct", "4+", nullable="4+", ignorable=True, fields=(
                    F("producer_id", "int64", "4+"),
                    F("first_offset", "int64", "4+"),
                )),
                F("preferred_read_replica", "int32", "11+", default=-1),
                F("records", "records", "0+", nullable="0+"),
            )),
        )),
        F("node_endpoints", "[]struct", "16+", tag=0, fields=(
            F("node_id", "int32", "16+"),
            F("host", "string", "16+"),
            F("port", "int32", "16+"),
            F("rack", "string", "16+", nullable="16+", default=None),
        )),
    ),
)  # fmt: skip
