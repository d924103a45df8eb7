"""ListOffsets (2): the offset for a time, or the first or last one. Ask the partition's leader.

Timestamps: -1 latest, -2 earliest, -3 the record with the greatest timestamp (v7), -4 earliest local (v8), -5 latest tiered (v9),
-6 earliest pending upload (v11). v2 isolation, v4 leader epochs, v10 a timeout.
"""

from fastfetch.protocol.schema import Api, F

LIST_OFFSETS = Api(
    key=2,
    name="ListOffsets",
    min_version=1,
    max_version=11,
    flexible_from=6,
    request=(
        # A consumer sends -1; Kafka's schema gives no default, and 0 would be read as "follower 0".
        F("replica_id", "int32", "0+", default=-1),
        F("isolation_level", "int8", "2+"),
        F("topics", "[]struct", "0+", fields=(
            F("name", "string", "0+"),
            F("partitions", "[]struct", "0+", fields=(
                F("partition_index", "int32", "0+"),
                F("current_leader_epoch", "int32", "4+", default=-1, ignorable=True),
                F("timestamp", "int64", "0+"),
            )),
        )),
        F("timeout_ms", "int32", "10+", ignorable=True),
    ),
    response=(
        F("throttle_time_ms", "int32", "2+", ignorable=True),
        F("topics", "[]struct", "0+", fields=(
            F("name", "string", "0+"),
            F("partitions", "[]struct", "0+", fields=(
                F("partition_index", "int32", "0+"),
                F("error_code", "int16", "0+"),
                F("timestamp", "int64", "1+", default=-1),
                F("offset", "int64", "1+", default=-1),
                F("leader_epoch", "int32", "4+", default=-1),
            )),
        )),
    ),
)  # fmt: skip
