"""SaslHandshake (17): choose a SASL mechanism. Never flexible.

v1 goes on with SaslAuthenticate instead of bare frames (KIP-152).
"""

from fastfetch.protocol.schema import Api, F

SASL_HANDSHAKE = Api(
    key=17,
    name="SaslHandshake",
    min_version=0,
    max_version=1,
    flexible_from=None,
    request=(F("mechanism", "string", "0+"),),
    response=(
        F("error_code", "int16", "0+"),
        F("mechanisms", "[]string", "0+"),
    ),
)
