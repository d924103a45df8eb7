"""OffsetFetch (9): what a group has committed.

v2 null topics = all, v5 leader epochs, v7 require_stable (KIP-447), v8 many groups at once, v9 member id and epoch (KIP-848),
v10 topic ids instead of names.
"""

from fastfetch.protocol.schema import Api, F

OFFSET_FETCH = Api(
    key=9,
    name="OffsetFetch",
    min_version=1,
    max_version=10,
    flexible_from=6,
    request=(
        F("group_id", "string", "0-7"),
        F("topics", "[]struct", "0-7", nullable="2-7", fields=(
            F("name", "string", "0-7"),
            F("partition_indexes", "[]int32", "0-7"),
        )),
        F("groups", "[]struct", "8+", fields=(
            F("group_id", "string", "8+"),
            F("member_id", "string", "9+", nullable="9+", default=None, ignorable=True),
            F("member_epoch", "int32", "9+", default=-1, ignorable=True),
            F("topics", "[]struct", "8+", nullable="8+", fields=(
                F("name", "string", "8-9", ignorable=True),
                F("topic_id", "uuid", "10+", ignorable=True),
                F("partition_indexes", "[]int32", "8+"),
            )),
        )),
        F("require_stable", "bool", "7+"),
    ),
    response=(
        F("throttle_time_ms", "int32", "3+", ignorable=True),
        F("topics", "[]struct", "0-7", fields=(
            F("name", "string", "0-7"),
            F("partitions", "[]struct", "0-7", fields=(
                F("partition_index", "int32", "0-7"),
                F("committed_offset", "int64", "0-7"),
                F("committed_leader_epoch", "int32", "5-7", default=-1, ignorable=True),
                F("metadata", "string", "0-7", nullable="0-7"),
                F("error_code", "int16", "0-7"),
            )),
        )),
        F("error_code", "int16", "2-7", ignorable=True),
        F("groups", "[]struct", "8+", fields=(
            F("group_id", "string", "8+"),
            F("topics", "[]struct", "8+", fields=(
                F("name", "string", "8-9", ignorable=True),
                F("topic_id", "uuid", "10+", ignorable=True),
                F("partitions", "[]struct", "8+", fields=(
                    F("partition_index", "int32", "8+"),
                    F("committed_offset", "int64", "8+"),
                    F("committed_leader_epoch", "int32", "8+", default=-1, ignorable=True),
                    F("metadata", "string", "8+", nullable="8+"),
                    F("error_code", "int16", "8+"),
                )),
            )),
            F("error_code", "int16", "8+"),
        )),
    ),
)  # fmt: skip
