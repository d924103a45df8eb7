"""OffsetCommit (8): store the next offsets to read.

v6 leader epochs, v7 static members, v9 the KIP-848 protocol (the generation is then a member epoch), v10 topic ids instead of
names.
"""

from fastfetch.protocol.schema import Api, F

OFFSET_COMMIT = Api(
    key=8,
    name="OffsetCommit",
    min_version=2,
    max_version=10,
    flexible_from=8,
    request=(
        F("group_id", "string", "0+"),
        F("generation_id_or_member_epoch", "int32", "1+", default=-1, ignorable=True),
        F("member_id", "string", "1+", ignorable=True),
        F("group_instance_id", "string", "7+", nullable="7+", default=None),
        F("retention_time_ms", "int64", "2-4", default=-1, ignorable=True),
        F("topics", "[]struct", "0+", fields=(
            F("name", "string", "0-9", ignorable=True),
            F("topic_id", "uuid", "10+", ignorable=True),
            F("partitions", "[]struct", "0+", fields=(
                F("partition_index", "int32", "0+"),
                F("committed_offset", "int64", "0+"),
                F("committed_leader_epoch", "int32", "6+", default=-1, ignorable=True),
                F("committed_metadata", "string", "0+", nullable="0+"),
            )),
        )),
    ),
    response=(
        F("throttle_time_ms", "int32", "3+", ignorable=True),
        F("topics", "[]struct", "0+", fields=(
            F("name", "string", "0-9", ignorable=True),
            F("topic_id", "uuid", "10+", ignorable=True),
            F("partitions", "[]struct", "0+", fields=(
                F("partition_index", "int32", "0+"),
                F("error_code", "int16", "0+"),
            )),
        )),
    ),
)  # fmt: skip
