"""The program's objects, classes and exceptions as its tests see them, from another process.

A `Handle` stands for an object that stays with the program. What depends on the object alone is the
program's answer, like the value of any call: attributes, items, methods, length, text, truth, hash. An
operator with a value of the tests would tell the program what they expect and let it decide, so operators
are the program's only between two of its objects of classes that the tests name. Otherwise a handle
equals only itself, or what its plain data equals.

Classes cross as classes, so that `except`, `isinstance` and `type` work.
"""

from __future__ import annotations

from typing import Any, NoReturn

from coding_model_project.sandbox.embedded.crossing import BINARY, UNARY


class Kind(type):
    """A class of the program: the class of its handles, or an exception.

    `_of` is the caller and the class's number.
    """

    def __new__(mcs, name: str, bases: tuple[Any, ...], body: dict[str, Any]) -> Any:
        if "_of" not in body:  # the tests derive a class of their own
            base = next(one for one in bases if isinstance(one, Kind))
            base._of[0].refuse(f"derive a class from the program's {base.__name__}")
        return super().__new__(mcs, name, bases, body)

    def __bool__(cls) -> bool:
        return True

    def __call__(cls, *arguments: Any, **keywords: Any) -> Any:
        return cls._of[0].ask("call", cls, arguments, keywords)

    def __getattr__(cls, name: str) -> Any:
        return _attribute(cls, cls._of, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        cls._of[0].ask("set", cls, name, value)

    def __getitem__(cls, key: Any) -> Any:
        return cls._of[0].ask("item", cls, key)

    def __iter__(cls) -> Any:
        return cls._of[0].ask("special", cls, "__iter__")

    def __len__(cls) -> Any:
        return cls._of[0].ask("special", cls, "__len__")


_DUNDERS = ("__name__", "__qualname__", "__doc__", "__dict__", "__wrapped__", "__notes__",
            "__annotations__")  # fmt: skip


def _attribute(target: Any, own: Any, name: str) -> Any:
    if own is None or (name.startswith("__") and name not in _DUNDERS):
        raise AttributeError(name)
    return own[0].ask("get", target, name)


class _Text:
    """`__doc__` of the program's objects and classes."""

    def __get__(self, instance: Any, owner: Any) -> Any:
        target, own = (owner, owner._of) if instance is None else (instance, instance._own)
        return own and own[0].ask("get", target, "__doc__")


DOC = _Text()


class Handle(metaclass=Kind):
    # An object that stays in the program's process. `_own` is the caller and the object's number.

    __doc__ = DOC  # type: ignore[assignment]
    __slots__ = ("_own",)
    __array_ufunc__ = None  # numpy would take a handle of an empty sequence for an empty array
    _of = None
    _holds_data = False

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._own[0].ask("call", self, arguments, keywords)

    def __getattr__(self, name: str) -> Any:
        return _attribute(self, self._own, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._own[0].ask("set", self, name, value)

    def __getitem__(self, key: Any) -> Any:
        return self._own[0].ask("item", self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._own[0].ask("set_item", self, key, value)

    def __delitem__(self, key: Any) -> None:
        self._own[0].ask("special", self, "__delitem__", key)

    def __contains__(self, item: Any) -> bool:
        return any(item is one or item == one for one in self)

    def __enter__(self) -> Any:
        return self._own[0].ask("special", self, "__enter__")

    def __exit__(self, kind: Any, error: Any, _: Any) -> bool:
        """Leave the context. It suppresses nothing: the program would skip the asserts that follow.

        The program sees an error of the tests without its text, and a failed assert not at all.
        """
        caller = self._own[0]
        if error is not None and not caller.is_of_program(error):
            error = caller.bare(error)
            kind = type(error) if error is not None else None
        if caller.failure is None:
            caller.ask("special", self, "__exit__", kind, error, None)
        return False

    def __await__(self) -> Any:
        return self._own[0].ask("await", self)
        yield  # makes this a generator, as Python expects

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        return self._own[0].ask("await", self._own[0].ask("special", self, "__anext__"))

    def __copy__(self) -> Any:
        return self._own[0].ask("copy", self, False)

    def __deepcopy__(self, _: Any) -> Any:
        return self._own[0].ask("copy", self, True)

    def __reduce__(self) -> NoReturn:
        raise TypeError("the program's objects cannot be pickled")


def _operate(one: Handle, name: str, other: Any, *, swapped: bool = False) -> Any:
    caller, number = one._own
    if isinstance(other, Handle):
        if name in ("__eq__", "__ne__") and other._own[1] == number:
            return name == "__eq__"
        if caller.names(type(one)) and caller.names(type(other)):
            return caller.ask("special", one, name, other)
        return NotImplemented
    if not type(one)._holds_data:
        return NotImplemented
    data = caller.ask("data", one)
    return BINARY[name](other, data) if swapped else BINARY[name](data, other)


def _unary(name: str) -> Any:
    return lambda self, *arguments: self._own[0].ask("special", self, name, *arguments)


def _binary(name: str, swapped: bool) -> Any:
    return lambda self, other: _operate(self, name, other, swapped=swapped)


for _name in UNARY:
    type.__setattr__(Handle, _name, _unary(_name))
for _name in BINARY:
    type.__setattr__(Handle, _name, _binary(_name, False))
    if _name not in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
        type.__setattr__(Handle, f"__r{_name[2:]}", _binary(_name, True))
