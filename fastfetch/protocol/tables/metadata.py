"""Metadata (3): brokers, topics, partitions and their leaders.

v7 leader epochs (trusted from v9 on, KAFKA-9212), v10 topic ids, v12 look-up by topic id, v13 an error of the whole answer.
"""

from fastfetch.protocol.schema import Api, F

# Kafka's "not asked for" in a bit field of operations.
_NOT_ASKED = -(2**31)

METADATA = Api(
    key=3,
    name="Metadata",
    min_version=0,
    max_version=13,
    flexible_from=9,
    request=(
        # v0: an empty list asks for all topics; from v1 null does and an empty list asks for none.
        F("topics", "[]struct", "0+", nullable="1+", fields=(
            F("topic_id", "uuid", "10+", ignorable=True),
            F("name", "string", "0+", nullable="10+"),
        )),
        F("allow_auto_topic_creation", "bool", "4+", default=True),
        F("include_cluster_authorized_operations", "bool", "8-10"),
        F("include_topic_authorized_operations", "bool", "8+"),
    ),
    response=(
        F("throttle_time_ms", "int32", "3+", ignorable=True),
        F("brokers", "[]struct", "0+", fields=(
            F("node_id", "int32", "0+"),
            F("host", "string", "0+"),
            F("port", "int32", "0+"),
            F("rack", "string", "1+", nullable="1+", default=None, ignorable=True),
        )),
        F("cluster_id", "string", "2+", nullable="2+", default=None, ignorable=True),
        F("controller_id", "int32", "1+", default=-1, ignorable=True),
        F("topics", "[]struct", "0+", fields=(
            F("error_code", "int16", "0+"),
            F("name", "string", "0+", nullable="12+"),
            F("topic_id", "uuid", "10+", ignorable=True),
            F("is_internal", "bool", "1+", ignorable=True),
            F("partitions", "[]struct", "0+", fields=(
                F("error_code", "int16", "0+"),
                F("partition_index", "int32", "0+"),
                F("leader_id", "int32", "0+"),
                F("leader_epoch", "int32", "7+", default=-1, ignorable=True),
                F("replica_nodes", "[]int32", "0+"),
                F("isr_nodes", "[]int32", "0+"),
                F("offline_replicas", "[]int32", "5+", ignorable=True),
            )),
            F("topic_authorized_operations", "int32", "8+", default=_NOT_ASKED),
        )),
        F("cluster_authorized_operations", "int32", "8-10", default=_NOT_ASKED),
        F("error_code", "int16", "13+", ignorable=True),
    ),
)  # fmt: skip
