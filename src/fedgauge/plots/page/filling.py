"""What every page is filled with: its files, numbers as JSON, the rule that it fetches nothing."""

import base64
import hashlib
from importlib.resources import files
from typing import Any, Final

import msgspec

# Names are anybody's text: none may end the block, or begin another element.
_ESCAPED: Final = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}


def text_of(*names: str) -> str:
    """Files of the package, one after the other."""
    return "".join(files(__package__).joinpath(name).read_text("utf-8") for name in names)


def plain_json(plain: Any) -> str:
    r"""Numbers and names as text that stays within its element.

    Examples
    --------
    >>> plain_json({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    return msgspec.json.encode(plain).decode().translate(_ESCAPED)


def policy(style: str, script: str) -> str:
    """What a page may do: nothing but its own style and script, and pictures of its figures."""
    return (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
