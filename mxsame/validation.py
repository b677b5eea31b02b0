"""Checks arguments, and brings them into canonical form.

Each function takes the argument's name, so that its message can say the rule and then "received name=value".
A wrong type is a `TypeError`, a wrong value a `ValueError`. This module imports no MXNet:
arrays arrive here as shapes and names of types.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import math
import operator
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Set, Tuple, TypeVar, Union, cast

from mxsame import suggestions
from mxsame.types import Causal, Layout, NamedPadding

Function = TypeVar("Function", bound=Callable[..., Any])
Name = TypeVar("Name", bound=str)
Pair = Tuple[int, int]
CanonicalPadding = Union[NamedPadding, Causal, Tuple[Pair, ...]]
PartialShape = Tuple[Optional[int], ...]

MAX_LENGTH = 2**31 - 1  # MXNet keeps lengths, and the number of an array's elements, as 32-bit integers
MAX_STEP = 2**29 - 1  # of kernels, strides and pads, so that sums of a few of them stay below `MAX_LENGTH`
PADDING_NAMES: Tuple[NamedPadding, ...] = ("same", "valid", "keras-mxnet")  # of every operator
OR_NUMBERS = ", or integers"  # in messages on padding
LAYOUTS: Dict[int, Tuple[Layout, Layout]] = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}
_NAMED = inspect.Parameter.POSITIONAL_OR_KEYWORD
MAX_REASONS_SHOWN = 50  # in a message
MAX_SHOWN = 16  # elements of an array that a message shows
FLOATS = ("float16", "float32", "float64")


class RuleError(Exception):
    """An error raised by this package's checks. Each subclass also derives from the builtin `shown`: a traceback shows
    that name, and pickling turns the error into it, unless it is a `ValueError` that is shown as another type."""

    shown: Any = Exception
    location: Tuple[str, str]  # the module and the name of the class

    def __init_subclass__(cls, shown: Any = None) -> None:
        if shown is not None:
            cls.location = cls.__module__, cls.__name__
            cls.shown, cls.__module__ = shown, shown.__module__
            cls.__name__ = cls.__qualname__ = shown.__name__

    def __reduce__(self) -> Any:
        is_builtin = self.shown in (ValueError, TypeError)
        return (self.shown, self.args) if is_builtin else (_restored, (*self.location, self.args))


def _restored(module: str, name: str, args: Tuple[Any, ...]) -> Any:
    return getattr(importlib.import_module(module), name)(*args)


class InvalidValue(RuleError, ValueError, shown=ValueError):
    """The `ValueError` of a rule."""


class MissingFile(InvalidValue, FileNotFoundError, shown=FileNotFoundError):
    """The error of a file that does not exist, which is a `ValueError`, too."""


class InvalidType(RuleError, TypeError, shown=TypeError):
    """The `TypeError` of a rule."""


class Refused(InvalidValue, shown=ValueError):
    """The error of all `reasons` why something is refused; a long message has only the first of them. `blocks` are
    those that cannot be written as a whole."""

    def __init__(self, reasons: Sequence[str], rule: str = "", blocks: Sequence[Any] = ()):
        self.reasons, self.blocks = list(dict.fromkeys(reasons)), blocks
        shown, more = self.reasons[:MAX_REASONS_SHOWN], len(self.reasons) - MAX_REASONS_SHOWN
        super().__init__(rule + "\n".join([*shown, f"... and {more} more"] if more > 0 else shown))


class DynamicShapeError(InvalidValue):
    """The error of an operator that has no exact graph for every size."""


class RecordingDict(Dict[str, Any]):
    """A dict that records which of its keys are read."""

    def __init__(self, given: Mapping[str, Any]):
        super().__init__(given)
        self.read: Set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)


def received(**values: Any) -> str:
    """Returns the second half of every message: `received name=value`."""
    return "received " + (", ".join(f"{name}={_short(value)}" for name, value in values.items()) or "nothing")


def _short(value: Any) -> str:
    try:
        is_long = getattr(value, "size", 0) > MAX_SHOWN  # to write an array down can take longer than to compute it
        text = f"{type(value).__name__} of shape {value.shape}" if is_long else repr(value)
        if hasattr(value, "collect_params") or " at 0x" in text:  # a net, or an object without a text of its own
            text = getattr(value, "__name__", None) or f"<{type(value).__name__}>"
    except Exception:
        text = f"<{type(value).__name__}>"
    text = " ".join(text.split())
    return text if len(text) <= 120 else f"{text[:117]}..."


def check(holds: Any, rule: str, **values: Any) -> None:
    """Raises `ValueError("{rule}; received name=value")` unless it holds."""
    if not holds:
        raise InvalidValue(f"{rule}; {received(**values)}" if values else rule)


def check_type(holds: Any, rule: str, **values: Any) -> None:
    """Raises `TypeError("{rule}; received name=value")` unless it holds."""
    if not holds:
        raise InvalidType(f"{rule}; {received(**values)}" if values else rule)


def check_arguments(function: Function) -> Function:
    """Decorates a function: a call with unknown, misspelled, missing or surplus arguments raises a `TypeError` that
    names the right ones."""
    parameters = inspect.signature(function).parameters
    by_position = [name for name, each in parameters.items() if each.kind == _NAMED]
    needed = [name for name in by_position if parameters[name].default is parameters[name].empty]
    takes_any_arguments = any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in parameters.values())
    is_method = needed[:1] == ["self"]

    @functools.wraps(function)
    def checked(*args: Any, **arguments: Any) -> Any:
        try:
            return function(*args, **arguments)
        except TypeError:
            unknown = [name for name in arguments if name not in parameters]
            maker = type(args[0]).__name__ if is_method else function.__name__
            for name in unknown:
                own = suggestions.argument(name, parameters)
                if own:
                    rule = f"{maker} has no argument {name}; use {own}"
                    raise InvalidType(f"{rule}; {received(**{name: arguments[name]})}") from None
            for name in () if takes_any_arguments else unknown:
                rule = f"{maker} has no argument {name}, only {', '.join(list(parameters)[is_method:])}"
                raise InvalidType(f"{rule}; {received(**{name: arguments[name]})}") from None
            missing = [name for name in needed[len(args) :] if name not in arguments]
            if missing:
                given = dict(list(zip(needed, args))[is_method:], **arguments)
                rule = f"{maker} must be given {' and '.join(missing)}"
                raise InvalidType(f"{rule}; {received(**given)}") from None
            if len(args) > len(by_position) and not takes_any_arguments:
                rule = f"{maker} takes {', '.join(by_position[is_method:])} by position, and the rest by name"
                raise InvalidType(f"{rule}; {received(arguments=len(args) - is_method)}") from None
            raise

    return cast(Function, checked)


def integer(name: str, value: Any, minimum: int, maximum: int = MAX_LENGTH) -> int:
    """Returns a plain `int` between `minimum` and `maximum`; bools are refused, NumPy's integers are fine."""
    if type(value) is int and minimum <= value <= maximum:  # fast path: planning checks thousands
        return value
    rule, is_bool = f"{name} must be an integer >= {minimum}", type(value).__name__ in ("bool_", "bool")
    check_type(not is_bool, f"{rule}, not a bool", **{name: value})
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidType(f"{rule}; {received(**{name: value})}") from None
    check(number >= minimum, rule, **{name: number})
    check(number <= maximum, f"{name} must be an integer <= {maximum}", **{name: number})
    return number


def flag(name: str, value: Any) -> bool:
    """Returns a value that must be a bool."""
    if type(value) is not bool:  # no other type is a bool
        raise InvalidType(f"{name} must be True or False; {received(**{name: value})}")
    return value


def is_sequence(value: Any) -> bool:
    """Returns whether `value` has one entry per axis, and is not one value for all axes."""
    return isinstance(value, (tuple, list)) or (hasattr(value, "__array__") and getattr(value, "ndim", 0) == 1)


def per_axis(name: str, value: Any, num_spatial_dims: int, minimum: int, maximum: int = MAX_STEP) -> tuple[int, ...]:
    """Returns an int for each axis, from one for all axes or from a sequence of one for each."""
    if not is_sequence(value):
        is_number = value is not None and not isinstance(value, (str, bytes, dict, set))
        check_type(is_number, f"{name} must be an integer or a sequence of integers", **{name: value})
        return (integer(name, value, minimum, maximum),) * num_spatial_dims
    rule = f"{name} must be an integer or a sequence of {num_spatial_dims}, one per spatial axis"
    check(len(value) == num_spatial_dims, rule, **{name: value})
    return tuple(integer(f"{name}[{axis}]", entry, minimum, maximum) for axis, entry in enumerate(value))


def one_of(name: str, value: Any, allowed: Sequence[Name], form: str = "") -> Name:
    """Returns in lower case one of the `allowed` names, given in any case; `form` ends the rule in the message."""
    if isinstance(value, str) and value.lower() in allowed:
        return cast(Name, value.lower())
    names = ", ".join(f'"{entry}"' for entry in allowed)
    rule = f"{name} must be one of {names}{form}{suggestions.did_you_mean(value, allowed)}"
    error = InvalidValue if isinstance(value, str) else InvalidType
    raise error(f"{rule}; {received(**{name: value})}")


def pads_of_axis(name: str, value: Any) -> Pair:
    """Returns (low, high) of an axis for an int, which pads both ends, or for a (low, high) pair."""
    if not is_sequence(value):
        pad = integer(name, value, 0, MAX_STEP)
        return pad, pad
    check(len(value) == 2, f"{name} must be an integer or a (low, high) pair", **{name: value})
    return integer(f"{name}[0]", value[0], 0, MAX_STEP), integer(f"{name}[1]", value[1], 0, MAX_STEP)


def padding(value: Any, num_spatial_dims: int, *, causal: bool = False) -> CanonicalPadding:
    """Returns padding in canonical form, a name or a (low, high) pair for each axis: from a name, an int, or an int or
    a pair for each axis. "causal" is a name in 1-D, for convolutions."""
    if isinstance(value, str):
        more: Tuple[Causal, ...] = ("causal",) if causal and num_spatial_dims == 1 else ()
        is_possible = value.lower() != "causal" or more
        check(is_possible, 'padding="causal" is for 1-D convolutions only', padding=value)
        return one_of("padding", value, (*PADDING_NAMES, *more), OR_NUMBERS)
    if not is_sequence(value):
        is_number = value is not None and not isinstance(value, (bytes, dict, set))
        check_type(is_number, "padding must be a string, an integer or a sequence", padding=value)
        return (pads_of_axis("padding", value),) * num_spatial_dims
    rule = f"padding must have one entry per spatial axis, {num_spatial_dims} here, each an int or a (low, high) pair"
    if num_spatial_dims == 1 and len(value) == 2 and not any(map(is_sequence, value)):
        rule += f" (a 1-D pair is written padding=(({_short(value[0])}, {_short(value[1])}),))"
    if len(value) == num_spatial_dims + 2 and all(map(is_sequence, value)):
        rule += " (omit the pairs of batch and channels, which TensorFlow's explicit paddings include)"
    elif len(value) == 2 * num_spatial_dims and not any(map(is_sequence, value)):
        rule += " (write the two numbers of one axis as a nested pair: ((1, 2), ...))"
    check(len(value) == num_spatial_dims, rule, padding=value)
    rule = "padding must be one string for all axes, or an int or a (low, high) pair for each axis"
    check_type(not any(isinstance(entry, str) for entry in value), rule, padding=value)
    return tuple(pads_of_axis(f"padding[{axis}]", entry) for axis, entry in enumerate(value))


def pooling_padding(value: Any, pool_size: Sequence[int]) -> CanonicalPadding:
    """Returns the padding of a pooling operator, where each pad must be less than the pool size."""
    pads = padding(value, len(pool_size))
    rule = "padding of pooling must be less than the pool size, or a window would hold no element of the data"
    less = isinstance(pads, str) or all(max(pair) < size for pair, size in zip(pads, pool_size))
    check(less, rule, padding=value, pool_size=tuple(pool_size))
    return pads


def count_include_pad(value: Any, padding: CanonicalPadding) -> bool:
    """Returns whether an average counts padding: by default only with "keras-mxnet", which requires it."""
    counted = padding == "keras-mxnet"
    counts = counted if value is None else flag("count_include_pad", value)
    rule = 'count_include_pad must be True with padding="keras-mxnet", whose averages count padding'
    check(counts or not counted, rule, count_include_pad=value)
    return counts


def layout(value: Any, num_spatial_dims: int) -> Layout:
    """Returns a layout of this rank; for None, the one with channels first."""
    allowed = LAYOUTS[num_spatial_dims]
    if value is None:
        return allowed[0]
    if isinstance(value, str) and value in allowed:
        return cast(Layout, value)
    check_type(isinstance(value, str), "layout must be a string", layout=value)
    axes = "1 spatial axis" if num_spatial_dims == 1 else f"{num_spatial_dims} spatial axes"
    names = f'"{allowed[0]}" (channels_first) or "{allowed[1]}" (channels_last)'
    rule = f"layout must be {names}, in capitals, for {axes}{suggestions.did_you_mean(value, allowed)}"
    raise InvalidValue(f"{rule}; {received(layout=value)}")


def has_channels_last(value: str) -> bool:
    """Returns whether a layout ends in C."""
    return value.endswith("C")


def rank_of_layout(value: Any) -> int:
    """Returns the number of spatial axes of a layout string."""
    check_type(isinstance(value, str), "layout must be a string", layout=value)
    ranks = {name: num_spatial_dims for num_spatial_dims, allowed in LAYOUTS.items() for name in allowed}
    capitals, words = f'"{value.upper()}", in capitals', '; for images, "channels_first" is "NCHW"'
    allowed = capitals if value.upper() in ranks else f"one of {', '.join(ranks)}{words}"
    check(value in ranks, f"layout must be {allowed}", layout=value)
    return ranks[value]


def rank(candidates: dict[str, int | None]) -> int:
    """Returns the number of spatial axes, on which all sources must agree: `candidates` maps sources to numbers."""
    known = {name: count for name, count in candidates.items() if count is not None}
    rule = "the number of spatial axes must be known: give data of known shape, a layout, or a kernel or pool size"
    check(known, f"{rule} with one entry per axis; received none of them")
    first = next(iter(known.values()))
    same = first in LAYOUTS and all(count == first for count in known.values())
    rule = "the number of spatial axes must be 1, 2 or 3, the same for all arguments (data has two more, N and C)"
    check(same, rule, **known)
    return first


def check_divisible(name: str, value: int, by_name: str, by: int) -> None:
    """Raises unless `name` is a multiple of `by_name`."""
    if value % by:
        raise InvalidValue(f"{name} must be a multiple of {by_name}; {received(**{name: value, by_name: by})}")


def check_equal(name: str, given: Any, source: str, actual: Any) -> None:
    """Raises unless an argument agrees with what an array shows."""
    check(None in (given, actual) or given == actual, f"{name} must agree with {source}, {actual}", **{name: given})


def check_shape(name: str, value: Sequence[int | None], expected: Sequence[int | None], meaning: str) -> None:
    """Raises unless a shape fits the expected one, where both are known."""
    if not fits(value, expected):
        rule = f"{name} must have the shape {meaning}, here ({_lengths(expected)})"
        raise InvalidValue(f"{rule}; {received(**{f'{name}.shape': tuple(value)})}")


def fits(value: Sequence[int | None], expected: Sequence[int | None]) -> bool:
    """Returns whether two shapes are equal where both are known."""
    return len(value) == len(expected) and all(None in pair or pair[0] == pair[1] for pair in zip(value, expected))


def remedy(name: str, value: Sequence[int | None], expected: Sequence[int | None]) -> str:
    """Returns, for an error, what makes an array of another shape fit: a batch axis, or another order of axes."""
    if fits((None, *value), expected):
        return f" (the batch axis is missing: use {name}.expand_dims(0))"
    last = len(value) - 1
    orders = {"first": (0, *range(2, last + 1), 1), "last": (0, last, *range(1, last))}
    for layout, (order, axes) in zip(LAYOUTS.get(last - 1, ()), () if fits(value, expected) else orders.items()):
        if fits([value[axis] for axis in axes], expected):
            return f' (it looks channels-{order}: use {name}.transpose({axes}), or a net of layout="{layout}")'
    return ""


def _lengths(value: Sequence[int | None]) -> str:
    return ", ".join(map(str, value)) + "," * (len(value) == 1)


def check_element_count(name: str, value: Sequence[int | None]) -> None:
    """Raises if an array has more elements than MXNet can count, as far as its shape is known."""
    if math.prod([1 if length is None else length for length in value]) >= MAX_LENGTH:
        rule = f"{name} must have fewer than {MAX_LENGTH} elements"
        raise InvalidValue(f"{rule}; received the shape ({_lengths(value)})")


def check_not_empty(name: str, value: Sequence[int]) -> None:
    """Raises unless an array of this shape has elements."""
    if 0 in value:
        raise InvalidValue(f"{name} must not be empty; {received(**{f'{name}.shape': tuple(value)})}")


def check_float_type(name: str, dtype: str, allowed: Sequence[str] = FLOATS, why: str = "") -> None:
    """Raises unless a type is a floating one that MXNet supports for this operator."""
    if dtype not in allowed:
        rule = f'{name} must have a float type; use {name}.astype("float32")'
        rule = f"{name} must be {' or '.join(allowed)}{why}" if "float" in dtype else rule
        raise InvalidType(f"{rule}; {received(**{f'{name}.dtype': dtype})}")
