"""The version of this code, as its nodes and commands tell it.

pyproject.toml takes it from here. The metadata of what is installed is not asked: that of an editable install
stays what it was when the install was made.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.3.0.dev0"
