"""Self-contained HTML files, which need no network and run only their own code.

Completions are hostile. They are embedded as compressed base64, which cannot end an element, and the
page shows them as text only. A content security policy allows only the page's own scripts, by hash,
and no requests.
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

from coding_model_project.atomic import replacing
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.comparison import Comparison
from coding_model_project.reports.charts import Bar, Chart, Kind, bar_chart, difference_chart

_FOLDER = Path(__file__).parent
_SHELL = _FOLDER / "shell.html"
"""Base template with a title and charts, which other templates extend."""


def write_page(
    out: Path,
    title: str,
    charts: Sequence[Chart],
    *,
    template: Path = _SHELL,
    scripts: Sequence[str] = (),
    data: Mapping[str, Any] | None = None,
    **content: object,
) -> None:
    """Write a page atomically, creating its folder.

    Args:
        charts: charts of the page.
        template: template that extends shell.html; gets `charts` and `content`.
        scripts: names of this folder's scripts that the page needs besides the drawing ones.
        data: data for scripts, by name.

    Raises:
        OSError: the page cannot be written.
    """
    figures = {chart.id: chart.plain() for chart in charts}
    data = {"figures": figures, **(data or {})}
    names = ("figures.js", *scripts, "page.js")
    stream = page(template, names, title=title, charts=charts, data=data, **content)
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as partial:
        stream.dump(str(partial), encoding="utf-8")


def page(
    template: Path, scripts: Sequence[str], *, data: Mapping[str, Any], **content: object
) -> TemplateStream:
    """Render a page.

    Args:
        template: template that extends shell.html; gets `content`.
        scripts: names of this folder's scripts.
        data: data for scripts, by name.
    """
    folders = [_FOLDER, template.parent]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders), autoescape=True, undefined=jinja2.StrictUndefined
    )
    texts = [(_FOLDER / name).read_text("utf-8") for name in scripts]
    return environment.get_template(template.name).stream(
        content,
        css=(_FOLDER / "page.css").read_text(),
        scripts=texts,
        hashes=[_hash(text) for text in texts],
        data={name: _packed(value) for name, value in data.items()},
    )


def _packed(content: Any) -> str:
    """Encode content as compressed JSON in base64, which is inert in HTML. NaN becomes null."""
    data = gzip.compress(orjson.dumps(content), compresslevel=6, mtime=0)
    return base64.b64encode(data).decode()


def _hash(script: str) -> str:
    """Return the hash of a script for a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


# ── the page of a comparison ──────────────────────────────────────────────────────────────────────

_DIFFERENCES = Kind(title="Difference", note="With its 95% interval; p after Holm's correction.")


def write_plot(comparison: Comparison, path: Path) -> None:
    """Write a self-contained HTML page.

    Raises:
        ConfigError: the path does not end in .html.
    """
    if path.suffix != ".html":
        raise ConfigError(f"--plot={path}: expected a .html file")
    write_page(path, f"Comparison by pass@{comparison.k}", comparison_charts(comparison))


def comparison_charts(comparison: Comparison) -> list[Chart]:
    """Return charts of the sides' scores and of the differences, with intervals."""
    sides: dict[str, dict[str, Bar]] = {}
    for pair in comparison.pairs:
        for side, score in ((pair.first, pair.first_score), (pair.second, pair.second_score)):
            sides.setdefault(side, {})[pair.dataset] = Bar(
                label=pair.dataset, value=score.mean, low=score.low, high=score.high
            )
    differences = [
        Bar(
            label=f"{pair.dataset}: {pair.second} − {pair.first}",
            value=pair.delta,
            low=pair.low,
            high=pair.high,
            note=f"p = {pair.corrected_p:.2g} (Holm)",
        )
        for pair in comparison.pairs
    ]
    scores = Kind(title=f"pass@{comparison.k}", note="With 95% intervals.", percent=True)
    return [
        bar_chart("scores", scores, {side: list(of.values()) for side, of in sides.items()}),
        difference_chart("differences", _DIFFERENCES, differences),
    ]
