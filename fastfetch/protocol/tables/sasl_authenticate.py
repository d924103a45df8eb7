"""SaslAuthenticate (36): one step of a SASL exchange. v1 the session's lifetime (KIP-368)."""

from fastfetch.protocol.schema import Api, F

SASL_AUTHENTICATE = Api(
    key=36,
    name="SaslAuthenticate",
    min_version=0,
    max_version=2,
    flexible_from=2,
    request=(F("auth_bytes", "bytes", "0+"),),
    response=(
        F("error_code", "int16", "0+"),
        F("error_message", "string", "0+", nullable="0+"),
        F("auth_bytes", "bytes", "0+"),
        F("session_lifetime_ms", "int64", "1+", ignorable=True),
    ),
)
