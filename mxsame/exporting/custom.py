"""The user's replacements for emitters: the argument `custom` of the writers."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional, Set, Type, Union

from mxsame._mxnet import mx
from mxsame.validation import Refused, check_type, received

Key = Union[str, Type[Any]]
Custom = Mapping[Key, Callable[..., Any]]  # MXNet's name of an operator, or a class of blocks -> function


class CustomEmitters:
    """The user's functions that write operators, by name, and blocks, by class."""

    def __init__(self, custom: Optional[Custom] = None):
        self.functions = {} if custom is None else custom
        check_type(isinstance(self.functions, Mapping), "custom must be a dict", custom=type(custom).__name__)
        invalid = {key: function for key, function in self.functions.items() if not _is_valid(key, function)}
        rule = "custom must map operator names of MXNet to functions of (write, attributes, *inputs), and "
        rule += "block classes to functions of (write, block, *inputs)"
        check_type(not invalid, rule, custom=invalid)
        self._used: Set[Optional[Key]] = set()

    def has(self, source: Any) -> bool:
        """Returns whether there is a function for an operator name, or for a block's class or one of its bases."""
        return self._key_of(source) is not None

    def function_of(self, source: Any) -> Callable[..., Any]:
        """Returns the function for an operator name or a block, and records that its key is used."""
        key = self._key_of(source)
        self._used.add(key)
        return self.functions[key]  # type: ignore[index]

    def _key_of(self, source: Any) -> Optional[Key]:
        names = [source] if isinstance(source, str) else type(source).__mro__
        return next((name for name in names if name in self.functions), None)

    def check_used(self) -> None:
        """Raises a `ValueError` if a key of `custom` was not used."""
        unused = [getattr(key, "__name__", key) for key in self.functions if key not in self._used]
        if unused:
            rule = "each key of custom must be an operator or a block class of the net"
            raise Refused([f"{rule}; {received(custom=unused)}"])


def _is_valid(key: Any, function: Any) -> bool:
    is_key = isinstance(key, str) or (isinstance(key, type) and issubclass(key, mx.gluon.HybridBlock))
    return is_key and callable(function) and not isinstance(function, (type, mx.gluon.Block))
