"""The tests' side of a program in another process: a client, which treats the program's answers as data.

Exceptions are raised with the program's class, arguments, text, attributes and causes. None of the
program's classes catches the tests' own exceptions.

A `Handle` stands for an object that stays with the program. What depends on the object alone is the
program's answer, like the value of any call: attributes, items, methods, length, text, truth, hash. An
operator with a value of the tests would tell the program what they expect and let it decide, so operators
are the program's only between two of its objects of classes that the tests name. Otherwise a handle
equals only itself, or what its plain data equals.

Classes cross as classes, so that `except`, `isinstance` and `type` work.
"""

from __future__ import annotations

import contextlib
import sys
from _thread import RLock  # `threading` would run a handler in every fork
from collections.abc import Iterator
from typing import Any, NoReturn

from coding_model_project.codec import NUMPY_KINDS
from coding_model_project.sandbox.embedded import frames
from coding_model_project.sandbox.embedded.crossing import (
    BINARY,
    UNARY,
    Pipe,
    from_picture,
    is_data,
    name_of,
    named,
    python_class,
    rebuilt,
    restore,
    to_picture,
)


def _asking(own: str, operation: str, *first: Any) -> Any:
    """Return a method that asks the program for an operation on the object.

    Args:
        own: the object's attribute with its caller.
        first: arguments of the operation before the method's.
    """
    return lambda self, *arguments: getattr(self, own)[0].ask(operation, self, *first, *arguments)


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

    __setattr__ = _asking("_of", "set")
    __getitem__ = _asking("_of", "item")
    __iter__ = _asking("_of", "special", "__iter__")
    __len__ = _asking("_of", "special", "__len__")


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

    __doc__ = DOC  # pyrefly: ignore[bad-override]
    __slots__ = ("_own",)
    __array_ufunc__ = None  # numpy would take a handle of an empty sequence for an empty array
    _of = None
    _holds_data = False

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._own[0].ask("call", self, arguments, keywords)

    def __getattr__(self, name: str) -> Any:
        return _attribute(self, self._own, name)

    __setattr__ = _asking("_own", "set")
    __getitem__ = _asking("_own", "item")
    __setitem__ = _asking("_own", "set_item")
    __delitem__ = _asking("_own", "special", "__delitem__")
    __enter__ = _asking("_own", "special", "__enter__")

    def __contains__(self, item: Any) -> bool:
        return any(item is one or item == one for one in self)

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


def _binary(name: str, swapped: bool) -> Any:
    return lambda self, other: _operate(self, name, other, swapped=swapped)


for _name in UNARY:
    type.__setattr__(Handle, _name, _asking("_own", "special", _name))
for _name in BINARY:
    type.__setattr__(Handle, _name, _binary(_name, False))
    if _name not in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
        type.__setattr__(Handle, f"__r{_name[2:]}", _binary(_name, True))


TESTS = "tests"
"""Name of the tests' module."""

_NEVER_RAISED = (StopIteration, StopAsyncIteration, GeneratorExit)
"""Exceptions that would end a loop of the tests, and its asserts, instead of failing them."""

_ITERABLES = ("builtins", "itertools", "_collections")
"""Modules of iterators and views whose items the program may take."""


class ProgramFailed(BaseException):
    """The program gave no answer, or cannot be asked. Not an `Exception`, which tests may catch."""


class _Broad(Exception):
    """Stand-in for `Exception` and its bases in the program's names, so that they catch no test's own."""


class Caller:
    """A client of the program that treats its answers as data."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self.failure: str | None = None
        """Reason for a missing answer; the tests then cannot pass, whatever they caught."""
        self.refused = ""
        """The tests' act that cannot be judged, if that is the reason."""
        self.failed_inside: AssertionError | None = None
        """A failed assert in a function of the tests that the program called, and may have caught."""
        self.named: set[type] = set()
        """Classes of the program that the tests name."""
        self.was_asked = False
        """True once the tests have used the program, which may have chosen what they did next."""
        self._kinds: dict[int, Kind] = {}
        self._handles: dict[int, Handle] = {}
        self._theirs: dict[int, tuple[Any, int, str]] = {}
        """Exceptions and coroutines of the program by their id here, with their number there and text."""
        self._ours: list[Any] = []
        """The tests' objects that the program has."""
        self._our_numbers: dict[int, int] = {}
        self._n_answering = 0
        """Questions of the program that are being answered. Refusing one would be its choice."""
        self._stdout = sys.stdout
        self._lock = RLock()
        """Held during a request, since tests may call the program from several threads."""

    def names_of_program(self) -> tuple[set[str], set[str]]:
        """Return the names that the program defines: modules that it imported, and all others."""
        with self._failing():
            reply = self._pipe.receive()
            modules, others = ({str(name) for name in reply[key]} for key in ("modules", "others"))
        return modules, others

    def names(self, kind: type) -> bool:
        """Return whether the tests name a class, or one that it derives from."""
        return not self.named.isdisjoint(kind.__mro__)

    def refuse(self, what: str) -> NoReturn:
        """End tests that cannot be judged, whatever the program does.

        Raises:
            ProgramFailed: always.
        """
        self.failure, self.refused = "data", what
        raise ProgramFailed(what)

    def ask(self, operation: str, *arguments: Any, changed: int | None = None) -> Any:
        """Send a request and return the program's answer.

        Args:
            changed: place of an argument that is changed here too if a call returns a value; all are if
                it returns None.

        Raises:
            ProgramFailed: it gave none, or the tests cannot be judged.
            ValueError: an argument nests too deep.
            Exception: the program's exception.
        """
        self.was_asked = self.was_asked or operation != "find"
        prints = sys.stdout is not self._stdout and sys.stdout is not None
        picture = to_picture(arguments, self._refer)
        with self._lock, self._failing():
            request = [operation, picture, changed is not None, prints]
            reply = self._pipe.ask(request, self._answer)
            error = None
            if "error" in reply:
                is_next = operation == "special" and arguments[1] == "__next__"
                may_end = is_next or operation == "await"
                error = self._to_raise(self._value(reply["error"]), may_end)
            value = None if "error" in reply else self._value(reply["value"])
            theirs = reply.get("arguments") if operation == "call" else None
            if theirs is not None and value is None:
                restore(arguments[1:], tuple(self._value(theirs)))
            elif theirs is not None and changed is not None:
                at = slice(changed, changed + 1)
                restore(arguments[1][at], self._value(theirs)[0][at])
        if prints:
            print(str(reply.get("printed", "")), end="")  # noqa: T201 - to what the tests put there
        if error is not None:
            raise error
        if operation == "find" and isinstance(value, Kind):
            self.named.add(value)
        return value

    def _to_raise(self, error: Any, may_end: bool) -> BaseException:
        """Return an exception for the tests.

        Args:
            may_end: whether it may be one that ends loops.
        """
        if not isinstance(error, BaseException):
            raise ValueError("no exception")
        if may_end or not isinstance(error, _NEVER_RAISED):
            return error
        made = type(type(error).__name__, (RuntimeError,), {})(*error.args)
        self._theirs[id(made)] = made, *self._theirs.get(id(error), (None, 0, ""))[1:]
        return made

    def is_of_program(self, error: BaseException) -> bool:
        """Return whether the program raised an exception."""
        return id(error) in self._theirs

    def bare(self, error: BaseException) -> BaseException | None:
        """Return what the program may see of an error of the tests: its built-in class, or nothing."""
        if isinstance(error, AssertionError):
            self.failed_inside = self.failed_inside or error
            return None
        kind: Any = next(one for one in type(error).__mro__ if one.__module__ == "builtins")
        with contextlib.suppress(TypeError):  # such as UnicodeDecodeError, which needs arguments
            return kind()
        return None

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Record any exception in the context as the program's failure, and raise ProgramFailed."""
        try:
            yield
        except Exception as error:
            if isinstance(error, frames.Oversized):
                self.failure = "output"
            elif isinstance(error, MemoryError):
                self.failure = "memory"
            else:
                self.failure = "raised"
            raise ProgramFailed("the program ended or sent what is no answer") from error

    # ── from the program ──────────────────────────────────────────────────────────────────────────

    def _value(self, picture: Any) -> Any:
        return from_picture(picture, self._resolve)

    def _resolve(self, tag: str, content: Any) -> Any:
        if tag == "h":
            number, kind = content
            return self._handle(_int(number), kind)
        if tag == "p":
            return self._kind(content)
        if tag == "k":
            kind = _checked(python_class(content))
            is_broad = issubclass(kind, BaseException) and issubclass(AssertionError, kind)
            return _Broad if is_broad else kind
        if tag == "r":
            return self._ours[_int(content)]
        if tag == "x":
            return self._exception(*content)
        raise ValueError(f"tag {tag!r}")

    def _handle(self, number: int, kind: Any) -> Any:
        if number not in self._handles:
            if kind == "coroutine":
                return self._coroutine(number)
            made: Any = object.__new__(Handle if type(kind) is str else self._kind(kind))  # pyrefly: ignore[bad-argument-type]
            object.__setattr__(made, "_own", (self, number))
            self._handles[number] = made
        return self._handles[number]

    def _coroutine(self, number: int) -> Any:
        handle = self._handle(number, "awaited")
        del self._handles[number]

        async def awaited() -> Any:
            return self.ask("await", handle)

        coroutine = awaited()
        self._theirs[id(coroutine)] = coroutine, number, ""
        return coroutine

    def _kind(self, content: list[Any]) -> Kind:
        number = _int(content[0])
        if number in self._kinds:
            return self._kinds[number]
        _, name, pictures, holds_data = content
        bases = []
        for ((tag, base),) in map(dict.items, pictures):
            bases.append(self._kind(base) if tag == "p" else python_class(base) or object)
        errors = [base for base in bases if issubclass(base, BaseException)]
        body: dict[str, Any] = {"_of": (self, number), "__module__": "solution"}
        if errors:
            body["__str__"] = lambda error: self._text_of(error)
            body["__getattr__"] = lambda error, name: self._attribute_of(error, name)
        else:
            bases = [base for base in bases if isinstance(base, Kind)] or [Handle]
            body |= {"__slots__": (), "__doc__": DOC, "_holds_data": holds_data is True}
        self._kinds[number] = Kind(str(name)[:80], tuple(errors or bases), body)
        return self._kinds[number]

    def _text_of(self, error: Any) -> str:
        return self._theirs[id(error)][2] if id(error) in self._theirs else str(error.args)

    def _attribute_of(self, error: Any, name: str) -> Any:
        if name.startswith("__") or id(error) not in self._theirs:
            raise AttributeError(name)
        return self.ask("get", error, name)

    def _exception(
        self,
        kind: Any,
        arguments: Any,
        text: Any,
        attributes: Any,
        cause: Any,
        context: Any,
        hides: Any,
        number: Any,
    ) -> BaseException:
        ((tag, content),) = kind.items()
        made = self._kind(content) if tag == "p" else _checked(python_class(content))
        given = self._value(arguments)
        if isinstance(made, Kind):
            error = made.__new__(made, *given)  # pyrefly: ignore[bad-argument-type]
            error.args = tuple(given)
            base = next(one for one in made.__mro__ if not isinstance(one, Kind))
            with contextlib.suppress(TypeError, ValueError):
                base.__init__(error, *given)
        else:
            error = rebuilt(made, given)
        if not isinstance(error, BaseException):
            raise ValueError("no exception")
        error.__dict__.update(self._value(attributes))
        error.__cause__, error.__context__ = (
            None if one is None else self._value(one) for one in (cause, context)
        )
        error.__suppress_context__ = hides is True
        self._theirs[id(error)] = error, _int(number), str(text)
        return error

    # ── to the program ────────────────────────────────────────────────────────────────────────────

    def _refer(self, value: Any, depth: int) -> Any:
        """See `crossing.Refer`."""
        kind: Any = type(value)
        if isinstance(value, Handle):
            return {"h": value._own[1]}
        if kind is Kind and value._of is not None:
            return {"h": value._of[1]}
        if id(value) in self._theirs:
            return {"h": self._theirs[id(value)][1]}
        if (callable(value) or isinstance(value, type)) and (name := named(value)):
            return {"k": name}
        if isinstance(value, BaseException):
            base = next(filter(None, map(named, type.mro(kind))))
            given = to_picture(list(value.args), self._refer, depth)
            return {"x": [base, given, self._number(value)]}
        if is_data(value):
            return None
        array: Any = value
        is_array = name_of(kind) == "numpy.ndarray"
        if is_array and not array.size and array.dtype.kind in NUMPY_KINDS:
            return {"y": [array.dtype.str, list(array.shape), []]}
        is_object = kind.__module__ == TESTS
        if not (is_object or callable(value) or self._may_be_chosen(value)):
            name = kind.__name__
            self.refuse(f"pass a {name} to the program, which runs in a process of its own")
        name = str(getattr(value, "__name__", kind.__name__))
        return {"r": [self._number(value), name, is_object and not isinstance(value, type)]}

    def _may_be_chosen(self, value: Any) -> bool:
        """Return whether a program may choose that the tests pass this value.

        A refusal would be its way out of being judged. So the program gets a reference.
        """
        if self._n_answering or id(value) in self._our_numbers:
            return True
        kind = type(value)
        is_numpy = kind.__module__.partition(".")[0] == "numpy"
        return is_numpy or (hasattr(kind, "__iter__") and kind.__module__ in _ITERABLES)

    def _number(self, value: Any) -> int:
        number = self._our_numbers.get(id(value))
        if number is None:
            number = self._our_numbers[id(value)] = len(self._ours)
            self._ours.append(value)
        return number

    def _answer(self, request: list[Any]) -> dict[str, Any]:
        """Do what the program asks of one of the tests' objects, and return the answer."""
        operation, picture = request
        target, *arguments = self._value(picture)
        if id(target) not in self._our_numbers:
            raise ValueError("not an object of the tests")
        is_object = type(target).__module__ == TESTS
        self._n_answering += 1
        try:
            value = _offered(operation, target, arguments, is_object=is_object)
            answer = {"value": to_picture(value, self._refer)}
            if operation == "call":
                answer["arguments"] = to_picture(tuple(arguments), self._refer)
            return answer
        except Exception as error:  # noqa: BLE001 - the tests' function raised it, for the program
            if isinstance(error, AssertionError) and not self.is_of_program(error):
                self.failed_inside = self.failed_inside or error
            if id(error) in self._theirs:
                return {"error": {"h": self._theirs[id(error)][1]}}
            return {"error": self._refer(error, 0)}
        finally:
            self._n_answering -= 1


def _offered(operation: str, target: Any, arguments: list[Any], *, is_object: bool) -> Any:
    """Return the value of an operation on an object of the tests.

    Functions, iterators and generators have attributes that lead to the tests' own names, so the program
    may only call them and take items.
    """
    name = str(arguments[0]) if arguments else ""
    match operation:
        case "call":
            positional, keywords = arguments
            return target(*positional, **keywords)
        case "special" if is_object or name in ("__iter__", "__next__", "__len__"):
            if name == "__contains__":
                return arguments[1] in target
            return (BINARY.get(name) or UNARY[name])(target, *arguments[1:])
        case "get" if is_object and not name.startswith("_"):
            return getattr(target, name)
        case "set" if is_object and not name.startswith("_"):
            return setattr(target, name, arguments[1])
        case "item" if is_object:
            return target[arguments[0]]
        case "set_item" if is_object:
            target[arguments[0]] = arguments[1]
            return None
    raise AttributeError(name)


def _int(number: Any) -> int:
    if type(number) is not int or number < 0:
        raise ValueError("no number")
    return number


def _checked(kind: Any) -> Any:
    if kind is None:
        raise ValueError("no class that both sides have")
    return kind
