"""ConsumerGroupHeartbeat (68): the whole of the KIP-848 protocol.

v1 member ids made by the client (KIP-1082), and subscriptions by regular expression.
"""

from fastfetch.protocol.schema import Api, F

_TOPIC_PARTITIONS = (
    F("topic_id", "uuid", "0+"),
    F("partitions", "[]int32", "0+"),
)

CONSUMER_GROUP_HEARTBEAT = Api(
    key=68,
    name="ConsumerGroupHeartbeat",
    min_version=0,
    max_version=1,
    flexible_from=0,
    request=(
        F("group_id", "string", "0+"),
        F("member_id", "string", "0+"),
        F("member_epoch", "int32", "0+"),
        # Null, and -1 for the timeout, mean "as in my last heartbeat".
        F("instance_id", "string", "0+", nullable="0+", default=None),
        F("rack_id", "string", "0+", nullable="0+", default=None),
        F("rebalance_timeout_ms", "int32", "0+", default=-1),
        F("subscribed_topic_names", "[]string", "0+", nullable="0+", default=None),
        F("subscribed_topic_regex", "string", "1+", nullable="1+", default=None),
        F("server_assignor", "string", "0+", nullable="0+", default=None),
        F("topic_partitions", "[]struct", "0+", nullable="0+", default=None, fields=_TOPIC_PARTITIONS),
    ),
    response=(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("error_message", "string", "0+", nullable="0+", default=None),
        F("member_id", "string", "0+", nullable="0+", default=None),
        F("member_epoch", "int32", "0+"),
        F("heartbeat_interval_ms", "int32", "0+"),
        # Null: unchanged. Not null: the target that may be used now.
        F("assignment", "struct", "0+", nullable="0+", default=None, fields=(
            F("topic_partitions", "[]struct", "0+", fields=_TOPIC_PARTITIONS),
        )),
    ),
)  # fmt: skip
