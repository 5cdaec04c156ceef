"""The JavaScript that draws figures in the browser: Vega, Vega-Lite and vega-embed, as one text from vl-convert."""

from __future__ import annotations

import base64
import contextlib
import gzip
import importlib.metadata
import json

from framework_compare.json_types import JSON
from framework_compare.paths import cache_dir, write_whole


def javascript() -> str:
    """The bundle, which sets window.vegaEmbed, as `packed` gives it; made once per version (seconds), then cached."""
    import vl_convert

    path = cache_dir() / "report" / f"vega-{importlib.metadata.version('vl-convert-python')}.txt"
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        text = _packed(vl_convert.javascript_bundle())  # type: ignore[call-arg]
    with contextlib.suppress(OSError):  # a cache that cannot be written costs seconds, not the report
        write_whole(path, text)
    return text


def javascript_file() -> str:
    """The bundle as a file of a site, for pages that load it when they draw."""
    return f"(function () {{{gzip.decompress(base64.b64decode(javascript())).decode()}\n}})();"


def packed(document: JSON) -> str:
    """A document as JSON, in gzip, in base64: what the page's script unpacks, and no text that a page could misread."""
    return _packed(json.dumps(document, separators=(",", ":")))


def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
