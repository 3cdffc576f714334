"""Contents of the HTML pages that we write."""

import base64
import gzip
import json
import re
from typing import Any


def packed(page: str, name: str) -> Any:
    """The data with this id, unpacked as the page's script does."""
    found = re.search(rf'id="{name}">([^<]*)<', page)
    assert found, f"the page has no {name}"
    return json.loads(gzip.decompress(base64.b64decode(found[1])))
