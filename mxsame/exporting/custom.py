"""What a user gives in place of emitters: `custom` of the writers."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional, Set, Type, Union

from mxsame._mxnet import mx
from mxsame.validation import check, check_type

Key = Union[str, Type[Any]]
Custom = Mapping[Key, Callable[..., Any]]  # MXNet's name of an operator, or a class of blocks -> function


class CustomEmitters:
    """The user's functions, by operators and by classes of blocks."""

    def __init__(self, custom: Optional[Custom] = None):
        self.functions = {} if custom is None else custom
        check_type(isinstance(self.functions, Mapping), "custom must be a dict", custom=type(custom).__name__)
        wrong = {key: given for key, given in self.functions.items() if not _is_usable(key, given)}
        rule = "custom must have functions of (write, attributes, *inputs), by MXNet's names of operators, and of "
        rule += "(write, block, *inputs), by classes of blocks"
        check_type(not wrong, rule, custom=wrong)
        self._used: Set[Optional[Key]] = set()

    def has(self, source: Any) -> bool:
        """Whether there is a function for an operator, by its name, or for a block, by its class or a base of that."""
        return self._key_of(source) is not None

    def function_of(self, source: Any) -> Callable[..., Any]:
        """The function for such an operator or block, which is used now."""
        key = self._key_of(source)
        self._used.add(key)
        return self.functions[key]  # type: ignore[index]

    def _key_of(self, source: Any) -> Optional[Key]:
        names = [source] if isinstance(source, str) else type(source).__mro__
        return next((name for name in names if name in self.functions), None)

    def check_used(self) -> None:
        """Raise `ValueError` if the net has no operator or no block of a key."""
        unused = [getattr(key, "__name__", key) for key in self.functions if key not in self._used]
        check(not unused, "custom must be of operators and blocks that are in the net", custom=unused)


def _is_usable(key: Any, given: Any) -> bool:
    is_key = isinstance(key, str) or (isinstance(key, type) and issubclass(key, mx.gluon.HybridBlock))
    return is_key and callable(given) and not isinstance(given, (type, mx.gluon.Block))
