"""A pytest plugin for aiokafka's own tests: their conftest.py imports docker, for tests that are not run here.

It also imports the installed aiokafka, before pytest puts the checkout in front of it.
"""

from __future__ import annotations

import sys
from unittest import mock

import aiokafka  # noqa: F401

sys.modules.setdefault("docker", mock.MagicMock())
