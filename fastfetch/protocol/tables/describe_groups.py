"""DescribeGroups (15): members and assignment of classic groups, from their coordinator.

v3 authorized operations, v4 static members, v6 a group that does not exist is error 69, not one that is Dead (KIP-1043).
"""

from fastfetch.protocol.schema import Api, F

DESCRIBE_GROUPS = Api(
    key=15,
    name="DescribeGroups",
    min_version=0,
    max_version=6,
    flexible_from=5,
    request=(
        F("groups", "[]string", "0+"),
        F("include_authorized_operations", "bool", "3+"),
    ),
    response=(
        F("throttle_time_ms", "int32", "1+", ignorable=True),
        F("groups", "[]struct", "0+", fields=(
            F("error_code", "int16", "0+"),
            F("error_message", "string", "6+", nullable="6+", default=None, ignorable=True),
            F("group_id", "string", "0+"),
            F("group_state", "string", "0+"),
            F("protocol_type", "string", "0+"),
            # The assignor that the members voted for, while there is one.
            F("protocol_data", "string", "0+"),
            F("members", "[]struct", "0+", fields=(
                F("member_id", "string", "0+"),
                F("group_instance_id", "string", "4+", nullable="4+", default=None, ignorable=True),
                F("client_id", "string", "0+"),
                F("client_host", "string", "0+"),
                F("member_metadata", "bytes", "0+"),
                F("member_assignment", "bytes", "0+"),
            )),
            F("authorized_operations", "int32", "3+", default=-(2**31)),
        )),
    ),
)  # fmt: skip
