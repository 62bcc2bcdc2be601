from __future__ import annotations

import bz2
import gzip
import importlib.util
import json
import lzma
import os
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from data_prep.sources import Excluded, InputFile, RawDocument, find_inputs, read_documents

REPOSITORY = Path(__file__).resolve().parents[2]
DUMP = "gensim/test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
needs_gensim = pytest.mark.skipif(
    importlib.util.find_spec("gensim") is None, reason="gensim, which holds a dump, is missing"
)
SITEINFO = (
    '<siteinfo><namespaces><namespace key="0" /><namespace key="1">Talk</namespace></namespaces>'
    "</siteinfo>"
)


def page(title, text, *, key=1, ns="<ns>0</ns>", extra=""):
    return (
        f"<page><title>{title}</title>{ns}<id>{key}</id>{extra}"
        f"<revision><id>9</id><text>{text}</text></revision></page>"
    )


def dump(*pages, head="", version="0.11"):
    name = f' xmlns="http://www.mediawiki.org/xml/export-{version}/"' if version else ""
    return f"<mediawiki{name}>{head}{''.join(pages)}</mediawiki>"


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def read(path, format="auto"):
    (file,) = find_inputs([str(path)], format)
    return list(read_documents(file))


def texts(items):
    return [item.text for item in items if isinstance(item, RawDocument)]


# --- finding ---------------------------------------------------------------------------------------


def test_folder_is_walked_in_order_without_what_is_no_data(tmp_path):
    names = ["b/wiki_01", "b/wiki_00", "a/x.txt", "z.jsonl"]
    no_data = [".hidden", "_SUCCESS", "a/wiki.partial", "README.md", "md5sums.txt", "manifest.json"]
    no_data += [".git/config", "_tmp/x", "enwiki-multistream-index.txt.bz2", "LICENSE"]
    for name in names + no_data:
        write(tmp_path / name, '{"text": "x"}')
    files = find_inputs([str(tmp_path)])
    assert [file.name for file in files] == ["a/x.txt", "b/wiki_00", "b/wiki_01", "z.jsonl"]
    assert {file.format for file in files} == {"jsonl"}
    assert Path(files[0].path) == tmp_path / "a" / "x.txt"


def test_linked_folders_are_read_once_even_in_a_circle(tmp_path):
    write(tmp_path / "data" / "a.txt", "x")
    (tmp_path / "in").mkdir()
    os.symlink(tmp_path / "data", tmp_path / "in" / "linked")
    os.symlink(tmp_path / "in", tmp_path / "data" / "back")
    assert [file.name for file in find_inputs([str(tmp_path / "in")])] == ["linked/a.txt"]


def test_folder_that_cannot_be_listed_is_no_empty_folder(tmp_path, monkeypatch):
    (tmp_path / "secret").mkdir()
    (tmp_path / "a.txt").write_text("A text.", encoding="utf-8")
    scandir = os.scandir

    def refusing(path):
        if str(path).endswith("secret"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(ValueError, match="secret: cannot be read"):
        find_inputs([str(tmp_path)])


def test_glob_file_and_names(tmp_path):
    for name in ("one/AA/w_0", "one/AB/w_0", "one/AB/w_1.partial", "two/AA/w_0", "[x].txt"):
        write(tmp_path / name, "x")
    files = find_inputs([f"{tmp_path}/one/*/w_*", f"{tmp_path}/two/AA/w_0", f"{tmp_path}/[x].txt"])
    assert [file.name for file in files] == ["AA/w_0", "AB/w_0", "w_0", "[x].txt"]
    files = find_inputs([str(tmp_path / "one" / "AA"), str(tmp_path / "two" / "AA")])
    assert [file.name for file in files] == ["one/AA/w_0", "two/AA/w_0"]


@pytest.mark.parametrize(
    ("content", "format"),
    [
        (dump(), "mediawiki"),
        (b"\xef\xbb\xbf\n" + dump().encode(), "mediawiki"),
        (('<?xml version="1.0" encoding="UTF-16"?>' + dump()).encode("utf-16"), "mediawiki"),
        ('<?xml version="1.0" encoding="UTF-16"?>'.encode("utf-16-be"), "mediawiki"),
        ('<doc id="1" url="" title="a">\nb\n</doc>\n', "wikiextractor"),
        ('{"text": ""}', "jsonl"),
        ("{{Infobox}} text", "text"),
        ("[1] text", "text"),
        ("Text".encode("utf-16"), "text"),
    ],
)
@pytest.mark.parametrize("compress", [bytes, bz2.compress, gzip.compress, lzma.compress])
def test_format_and_compression_are_told_from_the_content(tmp_path, content, format, compress):
    content = content if isinstance(content, bytes) else content.encode()
    path = write(tmp_path / "no-suffix", compress(content))
    assert find_inputs([str(path)]) == [InputFile(str(path), "no-suffix", format)]
    assert find_inputs([str(path)], "text")[0].format == "text"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "empty"),
        ("a.txt", b" \n\xef\xbb\xbf", "no text"),
        ("a.bz2", bz2.compress(b""), "no text"),
        ("a.bz2", b"<mediawiki/>", r"named \.bz2 but holds no such data"),
        ("a.bz2", bz2.compress(b"x" * 9999)[:20], "cannot be opened.*Compressed file ended"),
        ("a.gz", b"\x1f\x8b\x08\x00garbage garbage", "cannot be opened"),
        ("a.7z", b"7z\xbc\xaf\x27\x1c\x00", r"7z files are not read: .*bz2"),
        ("a", b"\x28\xb5\x2f\xfd\x00", r"Zstandard.*zstd -d"),
        ("a.zip", b"PK\x03\x04\x00", "zip"),
        ("a.parquet", b"PAR1\x00", "JSON lines"),
        ("a.tar", b"x" * 257 + b"ustar\x00", "tar"),
        ("a.json", b'[{"text": "x"}]', "one object a line"),
        ("a.xml", b"<!DOCTYPE html><html>", "HTML"),
    ],
)
def test_unreadable_files_are_refused_by_name(tmp_path, name, content, message):
    path = write(tmp_path / "in" / name, content)
    with pytest.raises(ValueError, match=message) as error:
        find_inputs([str(path)])
    assert str(path) in str(error.value)


def test_wrong_inputs_are_refused_by_name(tmp_path):
    path = str(write(tmp_path / "a.txt", "x"))
    write(tmp_path / "notes" / "README.md", "x")
    os.symlink(path, tmp_path / "link")
    for inputs, message in [
        ([f"{tmp_path}/missing"], "missing.*no such file or folder"),
        ([f"{tmp_path}/*.xml"], r"\*\.xml.*matches no file"),
        ([f"{tmp_path}/notes"], "notes.*no data file"),
        ([path, path], "given twice"),
        ([path, f"{tmp_path}/*.txt"], r"given twice.*\*\.txt"),
        ([path, f"{tmp_path}/link"], "given twice"),
        (["package:no_such_package_x/a"], "no_such_package_x is not installed"),
        (["package:json"], "expected package:NAME/path"),
        (["package:json/missing.xml"], "no such file in the installed package"),
        (["package:bz2/x"], "single module"),
    ]:
        with pytest.raises(ValueError, match=message):
            find_inputs(inputs)
    with pytest.raises(ValueError, match="format must be one of auto, mediawiki.*'xml'"):
        find_inputs([path], "xml")


def test_missing_gensim_names_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install gensim.*\[sample\]"):
        find_inputs([f"package:{DUMP}"])


# --- mediawiki -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["", "0.3", "0.10", "0.11"])
def test_pages_of_a_dump(tmp_path, version):
    path = write(
        tmp_path / "dump.xml",
        dump(
            page("A &amp; B", "one &lt;ref&gt;\r\ntwo\n", key=7),
            page("Talk:A", "talk", key=8, ns="<ns>1</ns>"),
            page("R", "[[A]]", extra='<redirect title="A" />'),
            page("R2", " #REDIRECT: [[A]]"),
            page("R3", "#WEITERLEITUNG [[A]]"),
            page("No", "# [[item]] of a list"),
            page("E", "").replace("<text></text>", '<text bytes="0" />'),
            page("Void", " \n "),
            page("Module", "x", extra="").replace("<text>", "<model>Scribunto</model><text>"),
            "<page><title>None</title><ns>0</ns><id>5</id></page>",
            version=version,
        ),
    )
    first, *rest = read(path)
    assert first == RawDocument("dump.xml", "7", "A & B", "one <ref>\ntwo", wikitext=True)
    reasons = [(item.title, getattr(item, "reason", "")) for item in rest]
    assert reasons == [
        ("Talk:A", "namespace"),
        ("R", "redirect"),
        ("R2", "redirect"),
        ("R3", "redirect"),
        ("No", ""),
        ("E", "empty"),
        ("Void", "empty"),
        ("Module", "model"),
        ("None", "empty"),
    ]


def test_old_dump_without_ns_uses_the_names_in_siteinfo(tmp_path):
    pages = [page("Talk:A", "a", ns=""), page("Star: B", "b", ns=""), page("C", "c", ns="")]
    path = write(tmp_path / "a.xml", dump(*pages, head=SITEINFO, version="0.3"))
    items = read(path)
    assert [isinstance(item, Excluded) for item in items] == [True, False, False]


def test_last_revision_counts(tmp_path):
    two = page("A", "new").replace("<revision>", "<revision><text>old</text></revision><revision>")
    assert texts(read(write(tmp_path / "a.xml", dump(two, page("B", "b"))))) == ["new", "b"]


def test_bzip2_with_several_streams(tmp_path):
    whole = dump(page("A", "a" * 500), page("B", "b" * 500)).encode()
    content = b"".join(bz2.compress(whole[i : i + 100]) for i in range(0, len(whole), 100))
    assert len(texts(read(write(tmp_path / "a.xml.bz2", content)))) == 2


@pytest.mark.parametrize("suffix", ["", ".bz2", ".gz", ".xz"])
def test_truncated_dump_names_the_last_page(tmp_path, suffix):
    noise = random.Random(5)  # does not compress: a cut is a cut in the pages too
    pages = [page(f"Page {n}", f"{noise.getrandbits(8000):x}", key=n) for n in range(300)]
    whole = dump(*pages, page("Talk:x", "t", key=900, ns="<ns>1</ns>")).encode()
    content = {
        "": bytes,
        ".bz2": lambda whole: bz2.compress(whole, 1),  # blocks of 100 kB
        ".gz": gzip.compress,
        ".xz": lzma.compress,
    }[suffix](whole)
    path = write(tmp_path / f"dump.xml{suffix}", content[: len(content) * 3 // 4])
    (file,) = find_inputs([str(path)])
    keys = []
    with pytest.raises(ValueError, match="cannot be read to its end") as error:
        keys.extend(item.key for item in read_documents(file))
    message = str(error.value)
    assert str(path) in message
    assert f"documents read: {len(keys)}; last page 'Page {keys[-1]}', id {keys[-1]}" in message


@pytest.mark.parametrize(
    "damaged",
    [
        lambda content: content.replace("</page>", "</pag>", 1),
        lambda content: content.replace("b", "\x00"),
        lambda content: content.encode().replace(b"b", b"\xff"),
        lambda content: content.replace("mediawiki", "feed"),
    ],
)
def test_damaged_dump_is_refused(tmp_path, damaged):
    path = write(tmp_path / "a.xml", damaged(dump(page("A", "a"), page("B", "b"))))
    (file,) = find_inputs([str(path)], "mediawiki")
    with pytest.raises(ValueError, match=r"a\.xml: cannot be read to its end as mediawiki"):
        list(read_documents(file))


def test_memory_does_not_grow_with_the_dump(tmp_path):
    def peak(num_pages):
        path = tmp_path / f"{num_pages}.xml.gz"
        with gzip.open(path, "wt", encoding="utf-8", compresslevel=1) as stream:
            stream.write("<mediawiki>")
            stream.writelines(page(f"P{n}", "text " * 2000) for n in range(num_pages))
            # and a page with a long history
            revision = f"<revision><text>{'old ' * 2000}</text></revision>"
            stream.write(f"<page><title>H</title>{revision * (num_pages // 4)}</page></mediawiki>")
        (file,) = find_inputs([str(path)])
        tracemalloc.start()
        assert sum(1 for _ in read_documents(file)) == num_pages + 1
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(800) < peak(100) * 1.5 + 100_000


@needs_gensim
def test_real_dump_inside_a_package():
    (file,) = find_inputs([f"package:{DUMP}"])
    assert (file.name, file.format) == (DUMP, "mediawiki")
    items = list(read_documents(file))
    assert len(texts(items)) == 106
    assert sum(isinstance(item, Excluded) and item.reason == "redirect" for item in items) == 100
    assert (items[1].key, items[1].title) == ("12", "Anarchism")


def test_one_article_in_every_packing(published):
    folder = published("dumps")
    files = find_inputs([str(folder)])
    assert [file.name for file in files][:2] == ["article-pyrus-utf16.xml", "article-pyrus.xml"]
    items = [list(read_documents(file)) for file in files]
    for (item,) in items[:5]:
        assert (item.key, item.title, item.reason) == ("9261472", "Pyrus", "redirect")
    assert [type(item).__name__ for item in items[5]].count("RawDocument") == 2


# --- the other formats -----------------------------------------------------------------------------


def test_wikiextractor(tmp_path):
    path = write(
        tmp_path / "wiki_00",
        '<doc id="12" url="u?curid=12" title="A &amp; &quot;B&quot;">\nA & "B"\n\n'
        "First &lt;b&gt;\u2028x.\r\n"
        'A & "B"\n\n</doc>\n\n'
        '<doc id="13" revid="5" url="u" title="Say "no"">\nNo title line\n</doc>\n'
        '<doc id="14" url="u" title="Only">\nOnly\n\n</doc>\n',
    )
    assert read(path) == [
        RawDocument("wiki_00", "12", 'A & "B"', 'First <b>\u2028x.\nA & "B"', wikitext=False),
        RawDocument("wiki_00", "13", 'Say "no"', "No title line", wikitext=False),
        Excluded("wiki_00", "14", "Only", "empty"),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('<doc id="1" title="a">\nx\n', "no </doc>"),
        ('<doc id="1" title="a">\nx\n<doc id="2" title="b">\ny\n</doc>\n', "line 3: a new <doc>"),
        ('<doc id="1" title="a">\nx\n</doc>\nstray\n', "line 4: text outside.*documents read: 1"),
    ],
)
def test_broken_wikiextractor_is_refused(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read(write(tmp_path / "wiki_00", content))


def test_real_wikiextractor_files(published):
    path = published("wikipedia-en/wiki_00.txt.xz")
    items = read(path)
    assert len(texts(items)) == 37
    assert (items[0].key, items[0].title) == ("700", "Arthur Schopenhauer")
    assert items[0].text.startswith("Arthur Schopenhauer (; ; 22 February 1788")


def test_jsonl(tmp_path):
    lines = [
        {"id": 5, "title": "T", "text": "a\nb", "url": "x"},
        {"text": "c\u2028d\ud800"},
        {"id": "", "text": " "},
    ]
    path = write(tmp_path / "a.jsonl", "\ufeff" + "\n\n".join(map(json.dumps, lines)))
    assert read(path) == [
        RawDocument("a.jsonl", "5", "T", "a\nb", wikitext=False),
        RawDocument("a.jsonl", "3", "", "c\u2028d", wikitext=False),
        Excluded("a.jsonl", "5", "", "empty"),
    ]


@pytest.mark.parametrize(
    "line", ['{"text": 5}', "{}", "[1]", '{"text": "a"', "null", "[" * 100_000]
)
def test_broken_jsonl_is_refused_by_line(tmp_path, line):
    path = write(tmp_path / "a.jsonl", f'{{"text": "x"}}\n{line}\n')
    with pytest.raises(ValueError, match=r"a\.jsonl.*line 2: "):
        read(path)


def test_text_has_blank_lines_between_documents(tmp_path):
    content = "\ufeffa\u2028b\x85c\x0bd\x00e\r\nf\r\n\r\n \t\n\ng\x0c\x1fh\ri\x7f"
    expected = ["a\u2028b\x85c de\nf", "g  h i"]
    for encoding in ("utf-8", "utf-16"):
        encoded = content.lstrip("\ufeff") if encoding == "utf-16" else content
        items = read(write(tmp_path / encoding, encoded.encode(encoding)))
        assert texts(items) == expected
        assert [item.key for item in items] == ["1", "2"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"one\n\ncaf\xe9\n", r"line 3: not UTF-8 text, at byte 8.*documents read: 1"),
        ("text\n".encode("utf-16") + b"x", "not UTF-16 text"),
    ],
)
def test_wrong_encoding_is_refused_by_place(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read(write(tmp_path / "a.txt", content))


def test_everything_works_without_a_utf8_locale(tmp_path):
    sample = "中文句子。 جملة عربية. हिन्दी वाक्य। 😀 ok"
    write(tmp_path / "1.xml", dump(page(sample, sample)))
    write(tmp_path / "2.txt", sample)
    write(tmp_path / "3.jsonl", json.dumps({"text": sample}, ensure_ascii=False))
    write(tmp_path / "4.wiki", f'<doc id="1" url="" title="x">\nx\n{sample}\n</doc>\n')
    code = (
        "import sys, json\n"
        "from data_prep.sources import find_inputs, read_documents\n"
        "from data_prep.wikitext import clean_wikitext\n"
        "from data_prep.sentences import split_sentences\n"
        "files = find_inputs(sys.argv[1:])\n"
        "texts = [d.text for file in files for d in read_documents(file)]\n"
        "print(json.dumps([split_sentences(clean_wikitext(t)) for t in texts]))\n"
    )
    environment = dict(os.environ, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    environment["PYTHONPATH"] = str(REPOSITORY)
    printed = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, str(tmp_path)],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    for sentences in json.loads(printed.decode("ascii")):
        assert " ".join(sentences) == sample
