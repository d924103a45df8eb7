"""ConsumerGroupDescribe (69): members and assignment of groups under KIP-848, from their coordinator.

v1 which protocol each member speaks (KIP-1099).
"""

from fastfetch.protocol.schema import Api, F

_ASSIGNMENT = (
    F("topic_partitions", "[]struct", "0+", fields=(
        F("topic_id", "uuid", "0+"),
        F("topic_name", "string", "0+"),
        F("partitions", "[]int32", "0+"),
    )),
)  # fmt: skip

CONSUMER_GROUP_DESCRIBE = Api(
    key=69,
    name="ConsumerGroupDescribe",
    min_version=0,
    max_version=1,
    flexible_from=0,
    request=(
        F("group_ids", "[]string", "0+"),
        F("include_authorized_operations", "bool", "0+"),
    ),
    response=(
        F("throttle_time_ms", "int32", "0+"),
        F("groups", "[]struct", "0+", fields=(
            F("error_code", "int16", "0+"),
            F("error_message", "string", "0+", nullable="0+", default=None),
            F("group_id", "string", "0+"),
            F("group_state", "string", "0+"),
            F("group_epoch", "int32", "0+"),
            F("assignment_epoch", "int32", "0+"),
            F("assignor_name", "string", "0+"),
            F("members", "[]struct", "0+", fields=(
                F("member_id", "string", "0+"),
                F("instance_id", "string", "0+", nullable="0+", default=None),
                F("rack_id", "string", "0+", nullable="0+", default=None),
                F("member_epoch", "int32", "0+"),
                F("client_id", "string", "0+"),
                F("client_host", "string", "0+"),
                F("subscribed_topic_names", "[]string", "0+"),
                F("subscribed_topic_regex", "string", "0+", nullable="0+", default=None),
                F("assignment", "struct", "0+", fields=_ASSIGNMENT),
                # What it shall have, once the others have given up what it lacks.
                F("target_assignment", "struct", "0+", fields=_ASSIGNMENT),
                F("member_type", "int8", "1+", default=-1, ignorable=True),
            )),
            F("authorized_operations", "int32", "0+", default=-(2**31)),
        )),
    ),
)  # fmt: skip
