"""Pages in Markdown from templates."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def rendered(template: Path, **values: Any) -> str:
    """Return the text of a template of Jinja with these values; block tags take no line."""
    import jinja2

    page = template.read_text("utf-8")
    return jinja2.Template(page, trim_blocks=True, keep_trailing_newline=True).render(values)
