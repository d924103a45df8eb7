"""Heartbeat (12): a member of a classic group is alive. v3 static members."""

from fastfetch.protocol.schema import Api, F

HEARTBEAT = Api(
    key=12,
    name="Heartbeat",
    min_version=0,
    max_version=4,
    flexible_from=4,
    request=(
        F("group_id", "string", "0+"),
        F("generation_id", "int32", "0+"),
        F("member_id", "string", "0+"),
        F("group_instance_id", "string", "3+", nullable="3+", default=None),
    ),
    response=(
        F("throttle_time_ms", "int32", "1+", ignorable=True),
        F("error_code", "int16", "0+"),
    ),
)
