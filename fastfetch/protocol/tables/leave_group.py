"""LeaveGroup (13): go, so that the others need not wait for the session to end.

v3 many members at once, v5 a reason (KIP-800).
"""

from fastfetch.protocol.schema import Api, F

LEAVE_GROUP = Api(
    key=13,
    name="LeaveGroup",
    min_version=0,
    max_version=5,
    flexible_from=4,
    request=(
        F("group_id", "string", "0+"),
        F("member_id", "string", "0-2"),
        F("members", "[]struct", "3+", fields=(
            F("member_id", "string", "3+"),
            F("group_instance_id", "string", "3+", nullable="3+", default=None),
            F("reason", "string", "5+", nullable="5+", default=None, ignorable=True),
        )),
    ),
    response=(
        F("throttle_time_ms", "int32", "1+", ignorable=True),
        F("error_code", "int16", "0+"),
        F("members", "[]struct", "3+", fields=(
            F("member_id", "string", "3+"),
            F("group_instance_id", "string", "3+", nullable="3+"),
            F("error_code", "int16", "3+"),
        )),
    ),
)  # fmt: skip
