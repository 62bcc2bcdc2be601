"""What the three command lines share: option spelling, one-line errors, --version, progress.

Options may be written with dashes or underscores; help shows dashes. A mistake of the user prints one
line and exits with 2, a check that failed exits with 1.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import difflib
import inspect
import logging
import os
import re
import sys
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Type, TypeVar

import jsonargparse

from packing import __version__

FAILED_CHECK = 1
BAD_INVOCATION = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells report it
QUIET_FOR = 2.0  # seconds before work is called long
TOLD_EVERY = 30.0  # seconds between lines where stderr is no terminal
T = TypeVar("T")
_TYPE_ERROR = re.compile(
    r'Parser key "(?P<key>[\w.]+)":? ?Does not validate against any of the Union subtypes '
    r"Subtypes: (?:\[|\()(?P<types>.*?)(?:\]|\)) Errors: .*Given value: (?P<found>\S*)"
)
_SCALAR_ERROR = re.compile(
    r"Parser key \"(?P<key>[\w.]+)\": Expected a <class '(?P<types>\w+)'>\. Got value: (?P<found>\S*)"
)
_REQUIRED = re.compile(
    r'.*arguments are required: (?P<key>[\w.]+).*|.*Key "(?P<named>[\w.]+)" is required.*'
)
_UNKNOWN = re.compile(r"[Uu]nrecognized arguments: (?P<option>--[\w.-]+)")
_OPTION = re.compile(r"(?<![\w/-])--[A-Za-z][\w.]*")


def missing_library(extra: str, error: ImportError) -> str:
    """What to say when a library of one of the extras is not installed."""
    return f"{error}; pip install '.[{extra}]' installs what it needs"


@contextlib.contextmanager
def alive(what: str) -> Iterator[None]:
    """Shows on stderr that work of unknown length goes on: the seconds so far, once it takes long.

    A terminal shows one line that counts and goes away at the end; a log gets a line now and then.
    """
    done = threading.Event()
    terminal = sys.stderr.isatty()
    started = time.monotonic()

    def tell() -> None:
        pause = QUIET_FOR
        while not done.wait(pause):
            pause = 1.0 if terminal else TOLD_EVERY
            text = f"{what}: {time.monotonic() - started:.0f} s"
            print(f"\r{text}" if terminal else text, end="" if terminal else "\n", file=sys.stderr)
            sys.stderr.flush()
        if terminal and pause != QUIET_FOR:
            print("\r" + " " * (len(what) + 12) + "\r", end="", file=sys.stderr, flush=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def print_table(rows: Sequence[Sequence[str]], header: bool = True) -> None:
    """Prints rows of text in columns: the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        print("  ".join(cells).rstrip())
        if header and number == 0:
            print("  ".join("-" * width for width in widths))


class CheckFailed(Exception):
    """A check found what it looks for: printed as one line, exit code 1."""


class _Help(jsonargparse.DefaultHelpFormatter):
    """Fills each paragraph of a description by itself; examples keep their lines. No default is no text."""

    def _expand_help(self, action: Any) -> str:
        text = re.sub(
            r"Optional\[(\w+)\]|Union\[(\w+), null\]", r"\1\2", super()._expand_help(action)
        )
        return text.replace(", default: null)", ")")

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(
            paragraph
            if "\n  " in paragraph
            else super(_Help, self)._fill_text(paragraph, width, indent)
            for paragraph in inspect.cleandoc(text).split("\n\n")
        )


class Parser(jsonargparse.ArgumentParser):
    """jsonargparse's parser whose options are shown with dashes and whose errors are exceptions."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, exit_on_error=False, formatter_class=_Help, **kwargs)
        self.allow_abbrev = False

    def format_help(self) -> str:
        return _with_dashes(super().format_help())

    def format_usage(self) -> str:
        return _with_dashes(super().format_usage())


def _with_dashes(text: str) -> str:
    return _OPTION.sub(lambda match: match.group().replace("_", "-"), text)


def _with_underscores(arguments: Sequence[str]) -> List[str]:
    """Spells option names as the parser knows them; values are left alone."""
    spelled = list(arguments)
    for i, argument in enumerate(spelled):
        if argument == "--":
            break
        if argument.startswith("--"):
            name, equals, value = argument[2:].partition("=")
            spelled[i] = "--" + name.replace("-", "_") + equals + value
    return spelled


def main(
    prog: str,
    description: str,
    commands: Dict[str, Callable[[Parser], Callable[[Any], Optional[int]]]],
    argv: Optional[Sequence[str]] = None,
) -> int:
    """Runs one of `commands` and returns the exit code.

    commands: name -> function that adds its options to a parser and returns what to run with them;
    the first line of its docstring is the command's help.
    """
    if argv is None:
        _run_in_utf8_mode(prog)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    parser = Parser(prog=f"python -m {prog}", description=description)
    parser.add_argument("--version", action="version", version=f"{prog} {__version__}")
    subcommands = parser.add_subcommands(required=True, dest="command")
    bodies, parsers = {}, {}
    for name, add_options in commands.items():
        summary = (add_options.__doc__ or "").split("\n")[0]
        parsers[name] = subparser = Parser(description=add_options.__doc__)
        bodies[name] = add_options(subparser)
        subcommands.add_subcommand(name, subparser, help=summary)
    arguments = _with_underscores(sys.argv[1:] if argv is None else argv)
    try:
        try:
            parsed = parser.parse_args(arguments)
            command = parsed.command
            options = _instantiate(parser, parsed)[command]
        except (TypeError, AttributeError, KeyError, OverflowError, RecursionError) as error:
            # a section of a config that is no section, a number that is none
            raise ValueError(f"the configuration cannot be read: {one_line(error)[:300]}") from None
        code = bodies[command](options)
        sys.stdout.flush()
        return code or 0
    except BrokenPipeError:  # the reader (head, less) has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print(f"{prog}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except CheckFailed as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return FAILED_CHECK
    except (jsonargparse.ArgumentError, argparse.ArgumentError, ValueError, OSError) as error:
        text = _explained(one_line(error), prog, arguments, parsers)
        print(f"{prog}: error: {text}", file=sys.stderr)
        return BAD_INVOCATION


def _run_in_utf8_mode(prog: str) -> None:
    """Starts the command again in Python's UTF-8 mode where the locale could not name every file.

    In the C locale, a folder named 数据 in a YAML file can be neither opened nor printed.
    """
    if sys.getfilesystemencoding().lower() not in ("utf-8", "utf8"):
        arguments = [os.fsencode(argument) for argument in sys.argv[1:]]
        os.execv(sys.executable, [sys.executable, "-X", "utf8", "-m", prog, *arguments])


def _instantiate(parser: Parser, parsed: Any) -> Any:
    """Makes dataclasses of the parsed values; the method's name depends on jsonargparse's version."""
    if hasattr(parser, "instantiate"):
        return parser.instantiate(parsed)
    return parser.instantiate_classes(parsed)


def dataclass_from(kind: Type[T], options: Any) -> T:
    """Builds a dataclass whose fields were added to the parser by `add_class_arguments`."""
    fields: Any = dataclasses.fields(kind)  # type: ignore[arg-type]
    return kind(**{field.name: getattr(options, field.name) for field in fields})


def one_line(error: BaseException) -> str:
    """An error's text on one line, option names with dashes, the parser's type errors made short."""
    text = " ".join(str(error).split()) or type(error).__name__
    for pattern in (_TYPE_ERROR, _SCALAR_ERROR):
        text = pattern.sub(_expected_and_found, text)
    return _with_dashes(text)


def _explained(text: str, prog: str, arguments: Sequence[str], parsers: Dict[str, Parser]) -> str:
    """The parser's own words on an argument that is missing or unknown, as its user spells arguments."""
    command = next((argument for argument in arguments if argument in parsers), None)
    if command is None:
        return text
    actions = [action for action in parsers[command]._actions if action.help != argparse.SUPPRESS]
    missing, unknown = _REQUIRED.match(text), _UNKNOWN.search(text)
    if missing:
        name = (missing.group("key") or missing.group("named")).partition(".")[2]
        spelled = [option for a in actions if a.dest == name for option in a.option_strings]
        where = " (before the options)" if any(action.nargs == "+" for action in actions) else ""
        wanted = _with_dashes(spelled[-1]) if spelled else name.upper() + where
        return f"{wanted} is missing, see python -m {prog} {command} --help"
    if unknown:
        known = [_with_dashes(option) for action in actions for option in action.option_strings]
        for close in difflib.get_close_matches(unknown.group("option"), known, 1):
            if close == unknown.group("option"):
                return f"{text} before the command; {close} goes after {command}"
            return f"{text}; did you mean {close}?"
    return text


def _expected_and_found(match: Any) -> str:
    types = re.findall(r"class '([\w.]+)'", match.group("types")) or [match.group("types")]
    expected = " or ".join(sorted("nothing" if name == "NoneType" else name for name in types))
    return f"{match.group('key')}: expected {expected}, found {match.group('found')!r}"
