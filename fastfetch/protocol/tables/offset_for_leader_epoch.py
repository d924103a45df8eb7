"""OffsetForLeaderEpoch (23): where a leader epoch ended, to find out whether the log was cut below the position (KIP-320)."""

from fastfetch.protocol.schema import Api, F

OFFSET_FOR_LEADER_EPOCH = Api(
    key=23,
    name="OffsetForLeaderEpoch",
    min_version=2,
    max_version=4,
    flexible_from=4,
    request=(
        # A consumer sends -1. Kafka's schema defaults to -2, "debugging consumer", which may read above the high watermark.
        F("replica_id", "int32", "3+", default=-1, ignorable=True),
        F("topics", "[]struct", "0+", fields=(
            F("topic", "string", "0+"),
            F("partitions", "[]struct", "0+", fields=(
                F("partition", "int32", "0+"),
                F("current_leader_epoch", "int32", "2+", default=-1, ignorable=True),
                F("leader_epoch", "int32", "0+"),
            )),
        )),
    ),
    response=(
        F("throttle_time_ms", "int32", "2+", ignorable=True),
        F("topics", "[]struct", "0+", fields=(
            F("topic", "string", "0+"),
            F("partitions", "[]struct", "0+", fields=(
                F("error_code", "int16", "0+"),  # before the partition, unlike everywhere else
                F("partition", "int32", "0+"),
                F("leader_epoch", "int32", "1+", default=-1, ignorable=True),
                F("end_offset", "int64", "0+", default=-1),
            )),
        )),
    ),
)  # fmt: skip
