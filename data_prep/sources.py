"""Inputs on disk -> raw documents, streaming: memory follows the largest document, not the file.

Formats: "mediawiki" (XML export, any schema version), "wikiextractor" (<doc id= url= title=>
blocks), "jsonl" (one object a line with a string "text", as from WikiExtractor --json or datasets),
and "text" (a blank line between documents). Each may be compressed with bzip2 (also multistream),
gzip or xz. All is read as UTF-8, or as UTF-16 where a BOM or the XML declaration says so, whatever
the locale. Only "\\n" ends a line: U+2028, form feeds and the like stay inside it.
"""

from __future__ import annotations

import bz2
import glob
import gzip
import html
import importlib.util
import io
import json
import lzma
import os
import re
import xml.etree.ElementTree as ET
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

OPENERS: Dict[bytes, Callable] = {b"BZh": bz2.open, b"\x1f\x8b": gzip.open, b"\xfd7zXZ": lzma.open}
COMPRESSED_SUFFIXES = {".bz2": b"BZh", ".gz": b"\x1f\x8b", ".xz": b"\xfd7zXZ"}
REFUSED = (  # offset in the file, magic bytes, what it is, what to do
    (0, b"7z\xbc\xaf\x27\x1c", "7z", "unpack it with `7z x`, or download the .bz2 dump"),
    (0, b"\x28\xb5\x2f\xfd", "Zstandard", "unpack it with `zstd -d`"),
    (0, b"PK\x03\x04", "zip", "unpack it with `unzip`"),
    (257, b"ustar", "tar", "unpack it with `tar xf`"),
    (0, b"PAR1", "Parquet", "write it as JSON lines with a `text` field"),
)
# In a folder these are not data: checksums, indexes, records of a run, notes. So is every name
# that starts with "." or "_".
NOT_DATA = re.compile(
    r".*\.(partial|part|tmp|md|rst|html?|py|log|ya?ml|md5|sha1|sha256)"
    r"|.*(md5|sha1|sha256)sums?(\.txt)?|.*-multistream-index.*"
    r"|(readme|licen[cs]e|copying|notice)(\.txt)?|(manifest|run|dumpstatus|dataset_infos?)\.json",
    re.IGNORECASE,
)
EXTRAS = {"gensim": "sample"}  # package -> extra of this project that installs it

# A few wikis' words; a dump newer than 2010 marks its redirects with an element of their own.
REDIRECT = re.compile(
    r"\s*#\s*(redirect|weiterleitung|redirection|redirecci[oó]n|rinvia|redirecionamento"
    r"|doorverwijzing|patrz|перенаправление|виж|重定向|転送|تحويل|अनुप्रेषित)\s*:?\s*\[\[",
    re.IGNORECASE,
)
DOC_START = re.compile(r'<doc\b.*?\sid="(?P<id>[^"]*)"(?:.*?\stitle="(?P<title>.*)"[^"]*)?>\s*')
ENTITY = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|\w+);")
SPACING_CONTROLS = re.compile(r"[\r\x0b\x0c\x1c-\x1f]")
CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1b\x7f\ud800-\udfff]")
DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError, ET.ParseError, ValueError)


@dataclass(frozen=True)
class InputFile:
    """One file to read."""

    path: str  # what to open
    name: str  # short, unique in a run, the same on every machine
    format: str  # a key of READERS


@dataclass(frozen=True)
class RawDocument:
    """One article as it lies in the file."""

    source: str  # InputFile.name
    key: str  # page id, or running number in the file from 1
    title: str  # "" where the format has none
    text: str
    wikitext: bool


@dataclass(frozen=True)
class Excluded:
    """A page that is no article, with the reason: namespace, redirect, model or empty."""

    source: str
    key: str
    title: str
    reason: str


Items = Iterator[Union[RawDocument, Excluded]]


def find_inputs(inputs: Sequence[str], format: str = "auto") -> List[InputFile]:
    """List the files behind inputs, in the order given and sorted inside each.

    inputs  each a file, a folder (searched recursively, without what NOT_DATA names), a glob, or
            "package:PKG/inner/path" inside an installed package, which is not imported
    format  a key of READERS, or "auto": told from the first bytes of each file

    Raises ValueError, naming the input, for one that is missing, matches nothing, is empty, is
    given twice, or is of a kind that cannot be read.
    """
    if format != "auto" and format not in READERS:
        known = ", ".join(["auto", *READERS])
        raise ValueError(f"format must be one of {known}, got {format!r}")
    found: List[Tuple[str, str]] = []
    given: Dict[str, str] = {}
    for item in inputs:
        for path, name in _expand(item):
            real = os.path.realpath(path)
            if real in given:
                raise ValueError(f"{path} is given twice: by {given[real]!r} and by {item!r}")
            given[real] = item
            found.append((path, name))
    names = _unique_names(found)
    return [
        InputFile(path, name, _check_file(path, format)) for (path, _), name in zip(found, names)
    ]


def read_documents(file: InputFile) -> Items:
    """Yield every page of a file: a RawDocument, or an Excluded with the reason.

    Line breaks are "\\n"; NUL and other C0 controls are removed (those that space text become a
    space). Raises ValueError when the file is damaged, cut short or not of its format, with its
    path, where known the line, the documents read so far and the last page reached.
    """
    last: Optional[Union[RawDocument, Excluded]] = None
    num_documents = 0
    try:
        with _open(file.path) as stream:
            for item in READERS[file.format](file.name, stream):
                last = item
                num_documents += isinstance(item, RawDocument)
                yield item
    except DAMAGE as error:
        reached = f"last page {last.title!r}, id {last.key}" if last else "no page reached"
        raise ValueError(
            f"{file.path}: cannot be read to its end as {file.format}: {error} "
            f"(documents read: {num_documents}; {reached})"
        ) from error


def _expand(item: str) -> List[Tuple[str, str]]:
    """Paths and short names of the files behind one input."""
    if item.startswith("package:"):
        root = _package_path(item)
        if os.path.isdir(root):
            prefix = item[len("package:") :].rstrip("/")
            return [(path, f"{prefix}/{name}") for path, name in _walk(item, root)]
        if not os.path.isfile(root):
            raise ValueError(f"input {item!r}: no such file in the installed package ({root})")
        return [(root, item[len("package:") :])]
    path = os.path.expanduser(item)
    if os.path.isdir(path):
        return _walk(item, path)
    if os.path.exists(path):
        return [(path, os.path.basename(path))]
    if not glob.has_magic(path):
        raise ValueError(f"input {item!r}: no such file or folder")
    base = Path(path)
    while glob.has_magic(str(base)):
        base = base.parent
    found = []
    for match in sorted(glob.glob(path, recursive=True)):
        if os.path.isfile(match) and not match.endswith(".partial"):
            found.append((match, Path(match).relative_to(base).as_posix()))
    if not found:
        raise ValueError(f"input {item!r}: the pattern matches no file")
    return found


def _refuse(error: OSError) -> None:
    """A folder that cannot be listed is an error, not an empty folder."""
    raise ValueError(f"{error.filename}: cannot be read ({error.strerror})")


def _walk(item: str, root: str) -> List[Tuple[str, str]]:
    found = []
    visited = set()
    for folder, folders, files in os.walk(root, onerror=_refuse, followlinks=True):
        if os.path.realpath(folder) in visited:  # a link back up
            folders.clear()
            continue
        visited.add(os.path.realpath(folder))
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        for name in files:
            if not name.startswith((".", "_")) and not NOT_DATA.fullmatch(name):
                found.append(Path(folder, name))
    if not found:
        raise ValueError(f"input {item!r}: no data file in this folder")
    return [
        (str(path), path.relative_to(root).as_posix())
        for path in sorted(found, key=lambda path: path.parts)
    ]


def _package_path(item: str) -> str:
    package, _, inner = item[len("package:") :].partition("/")
    if not package.isidentifier() or not inner:
        raise ValueError(f"input {item!r}: expected package:NAME/path/inside")
    spec = importlib.util.find_spec(package)
    if spec is None:
        advice = f"pip install {package}"
        if package in EXTRAS:
            advice += f", or install this project with its extra [{EXTRAS[package]}]"
        raise ValueError(f"input {item!r}: package {package} is not installed: {advice}")
    if not spec.submodule_search_locations:
        raise ValueError(f"input {item!r}: {package} is a single module and holds no files")
    return os.path.join(list(spec.submodule_search_locations)[0], *inner.split("/"))


def _unique_names(found: Sequence[Tuple[str, str]]) -> List[str]:
    """The short names, with folder names put before those that two files share."""
    names = [name for _, name in found]
    while True:
        repeated = {name for name, number in Counter(names).items() if number > 1}
        if not repeated:
            return names
        for i, (path, _) in enumerate(found):
            if names[i] in repeated:
                depth = len(names[i].split("/")) + 1
                names[i] = "/".join(Path(os.path.abspath(path)).parts[-depth:])


def _check_file(path: str, format: str) -> str:
    """The format of a file, told from its first bytes when format is "auto"."""
    if os.path.getsize(path) == 0:
        raise ValueError(f"{path}: the file is empty (0 bytes)")
    try:
        with _open(path) as stream:
            head = stream.read(4096)
    except DAMAGE as error:
        raise ValueError(f"{path}: cannot be opened: {error}") from error
    text = head.decode(_encoding(head), "replace").lstrip("\ufeff \t\r\n")
    if not text and len(head) < 4096:
        raise ValueError(f"{path}: the file holds no text")
    if format != "auto":
        return format
    if text.startswith(("<mediawiki", "<?xml", "<page")):
        return "mediawiki"
    if text.startswith("<doc "):
        return "wikiextractor"
    if re.match(r'\{\s*["}]', text):
        return "jsonl"
    if re.match(r'\[\s*\{\s*"', text):
        raise ValueError(f"{path}: a JSON array; expected JSON lines, one object a line")
    if text[:9].lower().startswith(("<!doctype", "<html")):
        raise ValueError(f"{path}: an HTML page; expected a dump or text (a failed download?)")
    return "text"


def _open(path: str) -> BinaryIO:
    """Open a file for reading decompressed bytes. Raises ValueError on a kind that is not read."""
    with open(path, "rb") as stream:
        head = stream.read(512)
    for offset, magic, kind, advice in REFUSED:
        if head.startswith(magic, offset):
            raise ValueError(f"{kind} files are not read: {advice}")
    for magic, opener in OPENERS.items():
        if head.startswith(magic):
            return opener(path, "rb")
    suffix = os.path.splitext(path)[1]
    if suffix in COMPRESSED_SUFFIXES:
        raise ValueError(f"named {suffix} but holds no such data (first bytes {head[:4]!r})")
    return open(path, "rb")


def _encoding(head: bytes) -> str:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if head.startswith(b"<\x00"):
        return "utf-16-le"
    return "utf-16-be" if head.startswith(b"\x00<") else "utf-8"


def _lines(stream: BinaryIO) -> Iterator[Tuple[int, str]]:
    r"""Yield (line number from 1, line without its "\n" and BOM)."""
    encoding = _encoding(stream.read(4))
    stream.seek(0)
    number = offset = 0
    try:
        if encoding != "utf-8":
            with io.TextIOWrapper(stream, encoding, newline="\n") as decoded:
                for line in decoded:
                    number += 1
                    yield number, line.rstrip("\n")
            return
        for raw in stream:
            line = raw.decode("utf-8")
            number += 1
            offset += len(raw)
            yield number, (line[1:] if number == 1 and line[:1] == "\ufeff" else line).rstrip("\n")
    except UnicodeDecodeError as error:
        place = f"byte {offset + error.start}" if encoding == "utf-8" else "that line or near it"
        raise ValueError(f"line {number + 1}: not {encoding.upper()} text, at {place}") from error


def _clean(text: str) -> str:
    text = SPACING_CONTROLS.sub(" ", text.replace("\r\n", "\n"))
    return CONTROLS.sub("", text).strip()


def _unescape(text: str) -> str:
    return ENTITY.sub(lambda match: html.unescape(match.group()), text)


def _document(name: str, key: str, title: str, text: str) -> Union[RawDocument, Excluded]:
    title = " ".join(_clean(title).split())
    text = _clean(text)
    if not text:
        return Excluded(name, key, title, "empty")
    return RawDocument(name, key, title, text, wikitext=False)


def _read_mediawiki(name: str, stream: BinaryIO) -> Items:
    events = iter(ET.iterparse(stream, events=("start", "end")))
    _, root = next(events)
    if _tag(root) != "mediawiki":
        raise ValueError(f"expected <mediawiki>, found <{_tag(root)}>")
    namespaces = set()  # names of those other than the articles'
    revision: Dict[str, str] = {}
    num_pages = 0
    for event, element in events:
        tag = _tag(element)
        if event == "start":
            continue
        if tag == "namespace" and element.get("key") != "0":
            namespaces.add(element.text)
        elif tag == "revision":  # the last one counts; a page may have a million
            revision = _children(element)
            element.clear()
        elif tag == "page":
            num_pages += 1
            yield _page(name, _children(element), revision, namespaces, num_pages)
            revision = {}
            root.clear()


def _page(
    name: str, page: Dict[str, str], revision: Dict[str, str], namespaces: set, number: int
) -> Union[RawDocument, Excluded]:
    title = " ".join(page.get("title", "").split())
    key = page.get("id", str(number))
    text = _clean(revision.get("text", ""))
    prefix, colon, _ = title.partition(":")
    if "redirect" in page or REDIRECT.match(text):
        return Excluded(name, key, title, "redirect")
    if page["ns"] != "0" if "ns" in page else colon and prefix in namespaces:
        return Excluded(name, key, title, "namespace")
    if revision.get("model", "wikitext") != "wikitext":
        return Excluded(name, key, title, "model")
    if not text:
        return Excluded(name, key, title, "empty")
    return RawDocument(name, key, title, text, wikitext=True)


def _tag(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def _children(element: ET.Element) -> Dict[str, str]:
    """Tag -> text of the direct children; tags without the namespace, which differs by version."""
    return {_tag(child): child.text or "" for child in element}


def _read_wikiextractor(name: str, stream: BinaryIO) -> Items:
    header = None
    body: List[str] = []
    num_documents = 0
    for number, line in _lines(stream):
        start = DOC_START.fullmatch(line) if line.startswith("<doc ") else None
        if start and header:
            raise ValueError(f"line {number}: a new <doc> before the </doc> of the last one")
        if start:
            header, body = start, []
        elif header and line.strip() == "</doc>":
            num_documents += 1
            title = _unescape(header["title"] or "").strip()
            text = _unescape("\n".join(body)).strip()
            first, _, rest = text.partition("\n")
            if first.strip() == title:  # printed above the text by WikiExtractor
                text = rest
            yield _document(name, header["id"] or str(num_documents), title, text)
            header = None
        elif header:
            body.append(line)
        elif line.strip():
            raise ValueError(f"line {number}: text outside of <doc> and </doc>")
    if header:
        raise ValueError(f"the last <doc>, id {header['id']}, has no </doc>")


def _read_jsonl(name: str, stream: BinaryIO) -> Items:
    for number, line in _lines(stream):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"line {number}: not JSON: {error}") from error
        if not isinstance(record, dict) or not isinstance(record.get("text"), str):
            raise ValueError(f"line {number}: expected an object with a string `text`")
        key = record.get("id")
        title = record.get("title")
        yield _document(
            name,
            str(key) if isinstance(key, (str, int)) and key != "" else str(number),
            title if isinstance(title, str) else "",
            record["text"],
        )


def _read_text(name: str, stream: BinaryIO) -> Items:
    num_documents = 0
    body: List[str] = []
    for _, line in _lines(stream):
        if line.strip():
            body.append(line)
        elif body:
            num_documents += 1
            yield _document(name, str(num_documents), "", "\n".join(body))
            body = []
    if body:
        yield _document(name, str(num_documents + 1), "", "\n".join(body))


READERS: Dict[str, Callable[[str, BinaryIO], Items]] = {
    "mediawiki": _read_mediawiki,
    "wikiextractor": _read_wikiextractor,
    "jsonl": _read_jsonl,
    "text": _read_text,
}
