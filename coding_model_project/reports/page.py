"""The HTML file of every page: it opens from disk, asks no network and runs only its own code.

Completions are hostile. They travel as compressed base64, which cannot end an element, and the page
puts them on screen as text only. A content security policy lets no script run but the page's own,
by its hash, and no request leave.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import orjson

from coding_model_project.extras import extra

if TYPE_CHECKING:  # imports plotly, which only an extra installs
    from coding_model_project.reports.charts import Chart

SHELL = Path(__file__).with_name("shell.html")
"""A title and charts; other templates extend it."""


def write_page(
    out: Path,
    title: str,
    charts: Sequence[Chart],
    *,
    template: Path = SHELL,
    scripts: Sequence[str] = (),
    data: Mapping[str, Any] | None = None,
    **content: object,
) -> None:
    """Write a page whole or not at all, with plotly.js in it; its folder is made.

    Args:
        charts: the figures that the page draws.
        template: extends shell.html; gets `charts` and `content`.
        scripts: names of this folder's scripts that the page needs besides those that draw.
        data: what scripts unpack, by name.

    Raises:
        ConfigError: plotly is not installed.
        OSError: the page cannot be written.
    """
    with extra("report"):
        from plotly.offline import get_plotlyjs

    folders = [SHELL.parent, template.parent]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders), autoescape=True, undefined=jinja2.StrictUndefined
    )
    names = ["figures.js", *scripts, "page.js"]
    texts = [get_plotlyjs(), *(SHELL.with_name(name).read_text() for name in names)]
    figures = {chart.id: chart.figure.to_plotly_json() for chart in charts}
    packed = {name: _packed(value) for name, value in {"figures": figures, **(data or {})}.items()}
    stream = environment.get_template(template.name).stream(
        content,
        title=title,
        charts=charts,
        css=SHELL.with_name("page.css").read_text(),
        scripts=texts,
        hashes=[_hash(text) for text in texts],
        data=packed,
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(out.name + ".partial")
    stream.dump(str(partial), encoding="utf-8")
    partial.replace(out)


def _packed(content: Any) -> str:
    """JSON, compressed, in an alphabet that HTML gives no meaning to. NaN becomes null."""
    data = gzip.compress(orjson.dumps(content), compresslevel=6, mtime=0)
    return base64.b64encode(data).decode()


def _hash(script: str) -> str:
    """Return the name of a script in a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
