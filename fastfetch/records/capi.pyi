from typing import Any

_C_API: Any
