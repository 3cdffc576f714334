"""Validators of names, hosts and headers in a task.toml. They raise ValueError for invalid ones."""

from __future__ import annotations

import re
import unicodedata
from ipaddress import ip_address, ip_network

_PACKAGE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]*/[a-zA-Z0-9][a-zA-Z0-9._-]*")
_SERVICE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")
_HOST_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NOT_IN_STEPS = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]')
_DEVICE = re.compile(r"(CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(?:COM|LPT)[1-9¹²³])", re.IGNORECASE)

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SECRET = re.compile(r"KEY|SECRET|TOKEN(?!S)|PASSWORD|CREDENTIAL|AUTH", re.IGNORECASE)
_TEMPLATE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_BARE = r"\$\{[A-Za-z_][A-Za-z0-9_]*(?::-)?\}"
_TEMPLATED = re.compile(rf"\s*(?:[A-Za-z]+\s+)?{_BARE}(?:[\s:-]*{_BARE})*\s*")


def package_name(name: str) -> str:
    """Validate a task's name in a registry: "org/name"."""
    if not _PACKAGE.fullmatch(name) or ".." in name:
        raise ValueError(
            f"{name!r} does not have the form 'org/name' (letters, digits, '-', '_', '.'; no '..')"
        )
    return name


def service_name(name: str | None) -> str | None:
    """Validate the name of a compose file's service, and strip it."""
    if name is None:
        return None
    if not _SERVICE.fullmatch(name.strip()):
        raise ValueError(f"{name!r} is not a valid name of a compose service")
    return name.strip()


def step_name(name: str) -> str:
    """Validate a step's name, which must be a valid folder name on every operating system."""
    portable = (
        name.strip()
        and name not in (".", "..")
        and not name.endswith((".", " "))
        and not _NOT_IN_STEPS.search(name)
        and not _DEVICE.fullmatch(name.partition(".")[0].rstrip(" "))
        and len(name.encode()) <= 255
    )
    if not portable:
        raise ValueError(f"{name!r} is not a valid step name: expected a portable folder name")
    return name


def step_key(name: str) -> str:
    """Return the key that must be unique: file systems may fold case and normalise Unicode."""
    return unicodedata.normalize("NFC", name).casefold()


def check_header(name: str, value: str) -> None:
    """Validate an MCP server's header, which may name a credential's variable but not contain one."""
    if not _HEADER.fullmatch(name) or "\r" in value or "\n" in value:
        raise ValueError(f"{name!r} is not an HTTP header, or its value has several lines")
    templates = _TEMPLATE.findall(value)
    if "${" in _TEMPLATE.sub(" ", value) or any("${" in default for _, default in templates):
        raise ValueError(f"header {name}: {value!r} is not a valid template of variables")
    secret = bool(_SECRET.search(name)) or name.lower() in ("cookie", "set-cookie")
    given = any(default and (secret or _SECRET.search(key)) for key, default in templates)
    if given or (secret and value.strip() and not _TEMPLATED.fullmatch(value)):
        raise ValueError(f"header {name} must give its credential as ${{VAR}}, without a default")


def hosts(given: tuple[str, ...]) -> tuple[str, ...]:
    """Validate and normalise an allow list's hosts: names, "*.name", addresses, networks."""
    return tuple(_host(one.strip().lower().rstrip(".")) for one in given)


def _host(host: str) -> str:
    try:
        if "/" in host and "%" not in host:
            return ip_network(host, strict=True).compressed
        if ":" in host and "%" not in host:
            return ip_address(host).compressed
    except ValueError:
        raise ValueError(f"{host!r} is not a host name, address or network") from None
    name = host.removeprefix("*.")
    is_name = all(_HOST_LABEL.fullmatch(label) for label in name.split("."))
    if not is_name or (name != host and _is_address(name)):
        raise ValueError(f"{host!r} is not a host name, address or network")
    return host


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
