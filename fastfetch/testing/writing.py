"""What a writable test broker is asked beside all that consumers ask: to make topics, to append to them, to delete them.

The versions are those before flexible encodings, which every producer still speaks. Batches are stored as they come: their CRC is
not compared, what an idempotent producer sends twice is there twice, and transactions are not coordinated. A topic's settings
are taken and forgotten, so timestamps stay the producer's.
"""

from __future__ import annotations

import itertools
from typing import Any

from fastfetch.errors import UsageError
from fastfetch.protocol.schema import Api, F

from .handlers import NOT_LEADER, UNKNOWN_TOPIC, Body, Context, Handler, is_legal

__all__ = ["PRODUCE", "WRITING", "WRITING_APIS"]

CORRUPT_MESSAGE, INVALID_TOPIC, INVALID_REQUIRED_ACKS, TOPIC_EXISTS, INVALID_PARTITIONS = 2, 17, 21, 36, 37

PRODUCE = Api(
    key=0,
    name="Produce",
    min_version=3,
    max_version=8,
    flexible_from=9,
    request=(
        F("transactional_id", "string", "3+", nullable="3+"),
        F("acks", "int16", "0+"),
        F("timeout_ms", "int32", "0+"),
        F("topic_data", "[]struct", "0+", fields=(
            F("name", "string", "0+"),
            F("partition_data", "[]struct", "0+", fields=(
                F("index", "int32", "0+"),
                F("records", "records", "0+", nullable="0+"),
            )),
        )),
    ),
    response=(
        F("responses", "[]struct", "0+", fields=(
            F("name", "string", "0+"),
            F("partition_responses", "[]struct", "0+", fields=(
                F("index", "int32", "0+"),
                F("error_code", "int16", "0+"),
                F("base_offset", "int64", "0+"),
                F("log_append_time_ms", "int64", "2+", default=-1, ignorable=True),
                F("log_start_offset", "int64", "5+", default=-1, ignorable=True),
                F("record_errors", "[]struct", "8+", ignorable=True, fields=(
                    F("batch_index", "int32", "8+"),
                    F("batch_index_error_message", "string", "8+", nullable="8+", default=None),
                )),
                F("error_message", "string", "8+", nullable="8+", default=None, ignorable=True),
            )),
        )),
        F("throttle_time_ms", "int32", "1+", ignorable=True),
    ),
)  # fmt: skip

CREATE_TOPICS = Api(
    key=19,
    name="CreateTopics",
    min_version=2,
    max_version=4,
    flexible_from=5,
    request=(
        F("topics", "[]struct", "0+", fields=(
            F("name", "string", "0+"),
            F("num_partitions", "int32", "0+"),
            F("replication_factor", "int16", "0+"),
            F("assignments", "[]struct", "0+", fields=(
                F("partition_index", "int32", "0+"),
                F("broker_ids", "[]int32", "0+"),
            )),
            F("configs", "[]struct", "0+", fields=(
                F("name", "string", "0+"),
                F("value", "string", "0+", nullable="0+"),
            )),
        )),
        F("timeout_ms", "int32", "0+", default=60000),
        F("validate_only", "bool", "1+"),
    ),
    response=(
        F("throttle_time_ms", "int32", "2+", ignorable=True),
        F("topics", "[]struct", "0+", fields=(
            F("name", "string", "0+"),
            F("error_code", "int16", "0+"),
            F("error_message", "string", "1+", nullable="0+", default=None, ignorable=True),
        )),
    ),
)  # fmt: skip

DELETE_TOPICS = Api(
    key=20,
    name="DeleteTopics",
    min_version=1,
    max_version=3,
    flexible_from=4,
    request=(
        F("topic_names", "[]string", "0-5"),
        F("timeout_ms", "int32", "0+"),
    ),
    response=(
        F("throttle_time_ms", "int32", "1+", ignorable=True),
        F("responses", "[]struct", "0+", fields=(
            F("name", "string", "0+"),
            F("error_code", "int16", "0+"),
        )),
    ),
)  # fmt: skip

INIT_PRODUCER_ID = Api(
    key=22,
    name="InitProducerId",
    min_version=0,
    max_version=1,
    flexible_from=2,
    request=(
        F("transactional_id", "string", "0+", nullable="0+"),
        F("transaction_timeout_ms", "int32", "0+"),
    ),
    response=(
        F("throttle_time_ms", "int32", "0+", ignorable=True),
        F("error_code", "int16", "0+"),
        F("producer_id", "int64", "0+", default=-1),
        F("producer_epoch", "int16", "0+"),
    ),
)

WRITING_APIS = {api.key: api for api in (PRODUCE, CREATE_TOPICS, DELETE_TOPICS, INIT_PRODUCER_ID)}

_producer_ids = itertools.count(1000)


def produce(c: Context) -> Body:
    topics = []
    for topic in c.request.body["topic_data"]:
        answers = [_append(c, topic["name"], each) for each in topic["partition_data"]]
        topics.append({"name": topic["name"], "partition_responses": answers})
    c.cluster.changed.notify_all()
    return {"responses": topics}


def _append(c: Context, topic: str, asked: Body) -> Body:
    answer: dict[str, Any] = {"index": asked["index"], "error_code": 0, "base_offset": -1}
    partition = c.cluster.find(topic, asked["index"])
    if not c.request.body["acks"]:
        answer["error_code"] = INVALID_REQUIRED_ACKS  # whoever says 0 reads no answers
    elif partition is None:
        answer["error_code"] = UNKNOWN_TOPIC
    elif c.cluster.leader_of(partition) != c.node.id:
        answer["error_code"] = NOT_LEADER
    else:
        try:
            answer["base_offset"] = partition.append(bytes(asked["records"] or b""))[0]
            answer["log_start_offset"] = partition.log_start
        except ValueError:
            answer["error_code"] = CORRUPT_MESSAGE
    return answer


def create_topics(c: Context) -> Body:
    return {"topics": [{"name": each["name"]} | _create(c, each) for each in c.request.body["topics"]]}


def _create(c: Context, asked: Body) -> Body:
    partitions = 1 if asked["num_partitions"] == -1 else asked["num_partitions"]
    if not is_legal(asked["name"]):
        return {"error_code": INVALID_TOPIC}
    if partitions < 1:
        return {"error_code": INVALID_PARTITIONS, "error_message": f"a topic has 1 or more partitions, not {partitions}"}
    try:
        if not c.request.body["validate_only"]:
            c.cluster.create_topic(asked["name"], partitions, 1, None, False)
    except UsageError as error:
        return {"error_code": TOPIC_EXISTS, "error_message": str(error)}
    return {"error_code": 0}


def delete_topics(c: Context) -> Body:
    answers = []
    for name in c.request.body["topic_names"]:
        there = c.cluster.topics.pop(name, None)
        answers.append({"name": name, "error_code": UNKNOWN_TOPIC if there is None else 0})
    c.cluster.changed.notify_all()
    return {"responses": answers}


def init_producer_id(c: Context) -> Body:
    return {"error_code": 0, "producer_id": next(_producer_ids), "producer_epoch": 0}


WRITING: dict[int, Handler] = {
    PRODUCE.key: produce,
    CREATE_TOPICS.key: create_topics,
    DELETE_TOPICS.key: delete_topics,
    INIT_PRODUCER_ID.key: init_producer_id,
}
