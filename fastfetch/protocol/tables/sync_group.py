"""SyncGroup (14): the leader hands in the assignment, everyone gets its share. v3 static members, v5 protocol type and name."""

from fastfetch.protocol.schema import Api, F

SYNC_GROUP = Api(
    key=14,
    name="SyncGroup",
    min_version=0,
    max_version=5,
    flexible_from=4,
    request=(
        F("group_id", "string", "0+"),
        F("generation_id", "int32", "0+"),
        F("member_id", "string", "0+"),
        F("group_instance_id", "string", "3+", nullable="3+", default=None),
        F("protocol_type", "string", "5+", nullable="5+", default=None, ignorable=True),
        F("protocol_name", "string", "5+", nullable="5+", default=None, ignorable=True),
        F("assignments", "[]struct", "0+", fields=(
            F("member_id", "string", "0+"),
            F("assignment", "bytes", "0+"),
        )),
    ),
    response=(
        F("throttle_time_ms", "int32", "1+", ignorable=True),
        F("error_code", "int16", "0+"),
        F("protocol_type", "string", "5+", nullable="5+", default=None, ignorable=True),
        F("protocol_name", "string", "5+", nullable="5+", default=None, ignorable=True),
        F("assignment", "bytes", "0+"),
    ),
)  # fmt: skip
