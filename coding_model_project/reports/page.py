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
from typing import Any

import jinja2
import orjson
from jinja2.environment import TemplateStream

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
    """Write a page whole or not at all; its folder is made.

    Args:
        charts: the figures that the page draws.
        template: extends shell.html; gets `charts` and `content`.
        scripts: names of this folder's scripts that the page needs besides those that draw.
        data: what scripts unpack, by name.

    Raises:
        OSError: the page cannot be written.
    """
    figures = {chart.id: chart.plain() for chart in charts}
    data = {"figures": figures, **(data or {})}
    names = ("figures.js", *scripts, "page.js")
    stream = page(template, names, title=title, charts=charts, data=data, **content)
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(out.name + ".partial")
    stream.dump(str(partial), encoding="utf-8")
    partial.replace(out)


def page(
    template: Path, scripts: Sequence[str], *, data: Mapping[str, Any], **content: object
) -> TemplateStream:
    """Put a page together.

    Args:
        template: extends shell.html; gets `content`.
        scripts: names of scripts beside shell.html or the template.
        data: what scripts unpack, by name.
    """
    folders = [SHELL.parent, template.parent]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders), autoescape=True, undefined=jinja2.StrictUndefined
    )
    loader = environment.loader
    assert loader is not None
    texts = [loader.get_source(environment, name)[0] for name in scripts]
    return environment.get_template(template.name).stream(
        content,
        css=SHELL.with_name("page.css").read_text(),
        scripts=texts,
        hashes=[_hash(text) for text in texts],
        data={name: _packed(value) for name, value in data.items()},
    )


def _packed(content: Any) -> str:
    """JSON, compressed, in an alphabet that HTML gives no meaning to. NaN becomes null."""
    data = gzip.compress(orjson.dumps(content), compresslevel=6, mtime=0)
    return base64.b64encode(data).decode()


def _hash(script: str) -> str:
    """Return the name of a script in a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
