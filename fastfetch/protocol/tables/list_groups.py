"""ListGroups (16): the groups that one broker coordinates.

v4 states, and a filter by them (KIP-518), v5 types, and a filter by them (KIP-848).
"""

from fastfetch.protocol.schema import Api, F

LIST_GROUPS = Api(
    key=16,
    name="ListGroups",
    min_version=0,
    max_version=5,
    flexible_from=3,
    request=(
        # Empty: whatever their state, whatever their type.
        F("states_filter", "[]string", "4+"),
        F("types_filter", "[]string", "5+"),
    ),
    response=(
        F("throttle_time_ms", "int32", "1+", ignorable=True),
        F("error_code", "int16", "0+"),
        F("groups", "[]struct", "0+", fields=(
            F("group_id", "string", "0+"),
            F("protocol_type", "string", "0+"),
            F("group_state", "string", "4+", ignorable=True),
            F("group_type", "string", "5+", ignorable=True),
        )),
    ),
)  # fmt: skip
