"""Blocks into dataclass instances of aiokafka's shape, made without their __init__."""

import copy
import gc
import pickle
import sys
import tracemalloc
import weakref
from dataclasses import asdict, dataclass, fields, replace

import pytest

from fastfetch import decode
from fastfetch.adapters.data_objects import data_objects, data_objects_of
from fastfetch.testing import encode_batch, message_set

aiokafka = pytest.importorskip("aiokafka")
ConsumerRecord = aiokafka.ConsumerRecord


def block_of(data):
    (block,) = decode(data, topic="orders", partition=7).blocks
    return block


RECORDS = [
    (b"k", b"value"),
    (None, b""),
    (b"", None),
    (b"k" * 300, b"v" * 70_000, None, [("h", b"1"), ("h", None), ("ä", b"")]),
]


def test_the_eleven_fields():
    made = data_objects(block_of(encode_batch(RECORDS, base_offset=100, timestamp=1_700_000_000_123)), ConsumerRecord)
    headers = (("h", b"1"), ("h", None), ("ä", b""))
    assert made == [
        ConsumerRecord("orders", 7, 100, 1_700_000_000_123, 0, b"k", b"value", None, 1, 5, ()),
        ConsumerRecord("orders", 7, 101, 1_700_000_000_124, 0, None, b"", None, -1, 0, ()),
        ConsumerRecord("orders", 7, 102, 1_700_000_000_125, 0, b"", None, None, 0, -1, ()),
        ConsumerRecord("orders", 7, 103, 1_700_000_000_126, 0, b"k" * 300, b"v" * 70_000, None, 300, 70_000, headers),
    ]


def test_a_slice_is_made_of_its_own_rows():
    block = block_of(encode_batch(RECORDS, base_offset=100))
    assert [record.offset for record in data_objects(block[1:3], ConsumerRecord)] == [101, 102]
    assert data_objects(block[4:], ConsumerRecord) == []


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_have_a_checksum_and_format_0_no_time(magic):
    data = message_set([(b"k", b"v"), (None, b"w")], magic=magic, base_offset=5)
    made = data_objects(block_of(data), ConsumerRecord)
    crc = int.from_bytes(data[12:16], "big")
    assert made[0].checksum == crc
    assert made[0].checksum != made[1].checksum
    assert [(r.timestamp is None, r.timestamp_type) for r in made] == [(magic == 0, None if magic == 0 else 0)] * 2


def test_an_instance_is_like_one_made_by_the_class():
    (made,) = data_objects(block_of(encode_batch([(b"k", b"v", None, [("h", b"1")])])), ConsumerRecord)
    called = ConsumerRecord(**{field.name: getattr(made, field.name) for field in fields(ConsumerRecord)})
    assert type(made) is ConsumerRecord
    assert made == called
    assert repr(made) == repr(called)
    assert vars(made) == vars(called)
    assert list(vars(made)) == list(vars(called))
    assert asdict(made) == asdict(called)
    assert pickle.loads(pickle.dumps(made)) == copy.copy(made) == copy.deepcopy(made) == made
    assert replace(made, value=b"w").value == b"w"


def test_attributes_can_be_set_and_deleted_and_added():
    first, second = data_objects(block_of(encode_batch([(b"a", b"b"), (b"c", b"d")])), ConsumerRecord)
    first.value = {"parsed": True}
    first.seen = 1
    del first.key
    assert vars(second)["value"] == b"d"
    assert not hasattr(second, "seen")
    assert first.value == {"parsed": True}
    with pytest.raises(AttributeError):
        _ = first.key


def test_a_cycle_through_a_record_is_collected():
    class Parsed:
        record = None

    (made,) = data_objects(block_of(encode_batch([(b"a", b"b")])), ConsumerRecord)
    made.value = Parsed()
    made.value.record = made
    gone = weakref.ref(made.value)
    del made
    gc.collect()
    assert gone() is None


def test_init_is_not_called_but_new_must_be_objects_own():
    @dataclass
    class Counted(ConsumerRecord):
        def __post_init__(self):
            raise AssertionError("called")

    (made,) = data_objects(block_of(encode_batch([(b"a", b"b")])), Counted)
    assert (type(made), made.key) == (Counted, b"a")

    class Odd(ConsumerRecord):
        def __new__(cls):
            raise AssertionError("called")

    for kind in (Odd, tuple, dict, int):
        with pytest.raises(TypeError, match="__new__"):
            data_objects(block_of(encode_batch([(b"a", b"b")])), kind)


def test_records_leak_nothing():
    topic = "-".join(["a", "name", "of", "its", "own"])  # a literal's references are not counted since 3.12
    (block,) = decode(encode_batch([(b"key", b"v" * 100)] * 500), topic=topic).blocks
    before = sys.getrefcount(topic)
    made = data_objects(block, ConsumerRecord)
    assert sys.getrefcount(topic) == before + 500
    del made
    assert sys.getrefcount(topic) == before


def test_instances_are_no_larger_than_those_of_init():
    """A class that gets instances before it has seen their attributes gives each of them a dict, of some 400 bytes."""
    block = block_of(encode_batch([(None, None)] * 2000))
    rows = [tuple(vars(record).values()) for record in data_objects(block, ConsumerRecord)]

    def size(make):
        @dataclass
        class Record(ConsumerRecord):
            pass

        tracemalloc.start()
        kept = make(Record)
        made = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(kept) == 2000
        return made / 2000

    # Theirs have their numbers already.
    assert size(lambda kind: data_objects(block, kind)) < 150 + size(lambda kind: [kind(*row) for row in rows])


def test_the_collector_stays_as_it_was():
    block = block_of(encode_batch([(b"key", b"v")] * 2000))
    was_on = gc.isenabled()
    try:
        for on in (True, False):
            (gc.enable if on else gc.disable)()
            data_objects(block, ConsumerRecord)
            assert gc.isenabled() is on
    finally:
        (gc.enable if was_on else gc.disable)()


def test_blocks_in_one_list():
    blocks = [block_of(encode_batch([(b"a", b"b")] * n, base_offset=base)) for base, n in ((0, 3), (10, 1))]
    made = data_objects_of([blocks[0][:0], blocks[0], blocks[0][3:], blocks[1]], ConsumerRecord)
    assert [record.offset for record in made] == [0, 1, 2, 10]
    assert data_objects_of([], ConsumerRecord) == []
