"""ApiVersions (18): what the broker speaks. The first request on every connection (KIP-511)."""

from fastfetch.protocol.schema import Api, F

API_VERSIONS = Api(
    key=18,
    name="ApiVersions",
    min_version=0,
    max_version=4,
    flexible_from=3,
    request=(
        F("client_software_name", "string", "3+", ignorable=True),
        F("client_software_version", "string", "3+", ignorable=True),
    ),
    response=(
        F("error_code", "int16", "0+"),
        F("api_keys", "[]struct", "0+", fields=(
            F("api_key", "int16", "0+"),
            F("min_version", "int16", "0+"),
            F("max_version", "int16", "0+"),
        )),
        F("throttle_time_ms", "int32", "1+", ignorable=True),
        F("supported_features", "[]struct", "3+", tag=0, ignorable=True, fields=(
            F("name", "string", "3+"),
            F("min_version", "int16", "3+"),
            F("max_version", "int16", "3+"),
        )),
        F("finalized_features_epoch", "int64", "3+", tag=1, default=-1, ignorable=True),
        F("finalized_features", "[]struct", "3+", tag=2, ignorable=True, fields=(
            F("name", "string", "3+"),
            F("max_version_level", "int16", "3+"),
            F("min_version_level", "int16", "3+"),
        )),
        F("zk_migration_ready", "bool", "3+", tag=3, ignorable=True),
    ),
)  # fmt: skip
