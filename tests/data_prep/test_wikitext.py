from __future__ import annotations

import contextlib
import importlib.util
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.sources import find_inputs, read_documents
from data_prep.wikitext import clean_wikitext

DUMP = (
    "package:gensim/test/test_data/"
    "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
)
RESIDUE = ("{{", "}}", "[[", "]]", "<ref", "__NOTOC__", "&nbsp;", "''")


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("'''Bold''' and ''italic'' and '''''both'''''.", "Bold and italic and both."),
        ("The ''Titanic'''s crew.\n'''''x'' y'''.", "The Titanic's crew.\nx y."),
        ("The ''b'' of l'''eau'' and l''''air'''.", "The b of l'eau and l'air."),
        ("''A'' isn't ''b''.", "A isn't b."),
        ("A [[link]], a [[target|label]] and [[bus]]es.", "A link, a label and buses."),
        ("[[#Section|here]] [[:Category:X]] [[:fr:Y]] [[#Z]]", "here Category:X fr:Y Z"),
        ("a[[File:x.jpg|thumb|The [[cap|tion]] {{x}}]]b", "ab"),
        ("[[Category:X]][[fr:Un]][[zh-yue:X]][[Image:a.png]]a", "a"),
        ("[[wikt:word|word]] and [[ER: a series]]", "word and ER: a series"),
        ("See [http://a.b/c the [[page]]] now [http://x] (http://y.z/?q=1).", "See the page now."),
        ("One<ref>{{cite|x}}</ref> two<ref name=a />.<ref name='b'>[[c]]", "One two.c"),
        ("Unclosed <ref name=x and more", "Unclosed name=x and more"),
        ("a<!-- x {{ y -->b <!-- not closed", "ab"),
        ("E <math>a_{b}</math> <code>x</code><gallery>\nFile:a|b\n</gallery>f", "E f"),
        ("<syntaxhighlight lang=c>{{a</syntaxhighlight><score>x</score>b", "b"),
        ("* <nowiki>[x] 'y' * z|{a}</nowiki> ''b''<nowiki/>'s", "[x] 'y' * z|{a} b's"),
        ("a<br/>b<p>c</p><span style='x'>d</span>", "a\nb\nc\nd"),
        ("m<sup>2</sup>, 10<sup>18</sup>, H<sub>2</sub>O", "m2, 10^18, H2O"),
        ("x &lt; y &amp;&nbsp;z &#8212; &eacute; 1 < 2", "x < y & z — é 1 < 2"),
        ("{{Infobox|a={{b|{{c}}}}\n|d=[[e]]}}Text{{citation needed}}.", "Text."),
        ("a ({{IPA|x}}) b ({{lang-fr|X}}; {{IPA|y}}, 1900) c ( , ) d ,", "a b (X; 1900) c d,"),
        ("{|\n! a\n|-\n| b\n{|\n| c\n|}\n|}\nText", "Text"),
        ("Before\n{| class=x\n| a\n|-\n! b\nAfter", "Before\nAfter"),
        (
            "* one\n** two\n# three\n: four\n; Term : what\n----\nEnd",
            "one\ntwo\nthree\nfour\nTerm: what\nEnd",
        ),
        ("__TOC__a __NOTOC__ __ИСТИНА__b __init__", "a b __init__"),
        ("A\n\n\n  B  \u2028 c\xa0d", "A\nB c d"),
        ("", ""),
        ("{{only|a template}}\n[[Category:X]]", ""),
        ("x]] y}} [[z {{w", "x y z w"),
        ("{{a|[[b}} c [[File:d|{{e]] f", "c f"),
        ("[1890s] and {x} stay", "[1890s] and {x} stay"),
    ],
)
def test_clean(wikitext, text):
    assert clean_wikitext(wikitext) == text


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{lang|fr|''eau''}}", "eau"),
        ("{{Lang-de|Wasser}}", "Wasser"),
        ("{{transl|ar|DIN|al-Jazā'ir}}", "al-Jazā'ir"),
        ("{{convert|5|km}}", "5 km"),
        ("{{convert|1300|mi|km|0|abbr=on}}", "1,300 mi"),
        ("{{convert|5|to|10|sqmi|km2}}", "5 to 10 sq mi"),
        ("{{convert|6|ft|2|in|m}}", "6 ft 2 in"),
        ("{{Convert|20|-|30|C}}", "20–30 °C"),
        ("{{nowrap|[[Pope]] {{small|IV}}}}", "Pope IV"),
        ("{{formatnum:1234567}} {{formatnum:2.5}}", "1,234,567 2.5"),
        ("{{as of|2014}} {{As of|2014|3|1|lc=y}}", "As of 2014 as of 1 March 2014"),
        ("{{frac|1|2}} {{frac|3}} {{frac|2|1|4}}", "1/2 1/3 2 1/4"),
        ("{{val|6.24|e=18|u=C}}", "6.24×10^18 C"),
        ("{{chem|C|''n''|H|2''n''+2}}", "CnH2n+2"),
        ("{{HMS|Ajax|22|6}} {{ship|USS|Iowa}}", "HMS Ajax USS Iowa"),
        ("''Titanic''{{'s}} a{{snd}}b", "Titanic's a – b"),
        ("{{circa|1900}} {{nihongo|Aikido|合気道|Aikidō}}", "c. 1900 Aikido"),
        ("He said{{quote|text=Some words.|by=x}}", "He said\nSome words."),
        ("{{nowrap|1=a = b}} {{abbr|Dr|Doctor}}", "a = b Dr"),
        ("x{{IPAc-en|a}}{{respell|a}}{{unknown|text}}y", "xy"),
    ],
)
def test_inline_templates(template, text):
    assert clean_wikitext(template) == text


def test_headings_stay_where_text_stands_under_them():
    text = clean_wikitext(
        "Lead.\n== History ==\n=== Early ''years'' ===\nText.\n=== Empty ===\n== Empty too ==\n"
        "{{x}}\n== See also ==\n* [[a]]\n=== Sub ===\nb\n== End ==\nLast.\n== References ==\n{{r}}\nx"
    )
    assert text.split("\n") == ["Lead.", "History", "Early years", "Text.", "End", "Last."]


FRAGMENTS = (
    "{{ }} [[ ]] {| |} | = == '' ''' <ref> </ref> <ref <nowiki> </nowiki> <!-- --> <b> <table> "
    "{{lang|fr| {{quote| [[File:a| [http://a [ ] { } &nbsp; &lt; &amp; &#91; __NOTOC__ __ NOTOC _ "
    "( ) , ; : * # & a B"
).split() + ["\n", " ", "\n== a ==\n", "\n|-\n", "\u2028", "\xa0", "\x00"]


@given(
    st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=2)), max_size=40).map("".join)
)
@settings(max_examples=200, deadline=None)
def test_output_holds_no_markup(wikitext):
    text = clean_wikitext(wikitext)
    assert not [mark for mark in RESIDUE if mark in text]
    assert not text or all(line and line == " ".join(line.split()) for line in text.split("\n"))


@pytest.mark.parametrize(
    "wikitext",
    [
        "{{a|" * 5000,
        "[[a|" * 5000,
        "{{x" * 5000 + "}}" * 5000,
        "{{lang|fr|" * 5000 + "}}" * 5000,
        "{{" * 90 + "[[a]] ]]" * 20000,
        "[http://a " * 5000,
        "mailto::[http://,_0" * 5000,
        "<ref " * 5000,
        "<ref>" * 5000,
        "<!--" * 5000,
        "<b>" * 5000,
        "{|\n| a\n" * 5000,
        "|\n== a ==\n''{|(|\n" * 2500,
        "'''a''" * 5000,
        "(, " * 10000,
        "=" * 50000,
        "&amp;" * 10000,
        "{{nowrap|" + " " * 50000 + "|b" * 20000 + "}}",
    ],
    ids=lambda wikitext: wikitext[:12],
)
def test_hostile_markup_costs_no_more_than_other_text(wikitext):
    start = time.process_time()
    with contextlib.suppress(ValueError):  # too many open brackets
        clean_wikitext(wikitext)
    assert time.process_time() - start < 2


def test_deep_nesting_is_refused():
    with pytest.raises(ValueError, match="over 100 brackets"):
        clean_wikitext("{{" * 5000)


def test_real_articles():
    if importlib.util.find_spec("gensim") is None:
        pytest.skip("gensim, which carries a piece of the English Wikipedia, is not installed")
    texts = {}
    for document in read_documents(find_inputs([DUMP])[0]):
        if hasattr(document, "text") and len(texts) < 30:
            texts[document.title] = clean_wikitext(document.text)
    everything = "\n".join(texts.values())
    marks = (*RESIDUE, "==", "{|", "|}", "()", "http://", "thumb|", "</", "|thumb", "px|")
    assert {mark: everything.count(mark) for mark in marks} == dict.fromkeys(marks, 0)
    assert everything.count("|") == 1  # in an article on character sets
    assert texts["Anarchism"].startswith("Anarchism is a political philosophy that advocates")
    assert (
        "\nEtymology and terminology\nThe term anarchism is a compound word" in texts["Anarchism"]
    )
    assert "With an area of 2,381,741 km²" in texts["Algeria"]
    assert len(texts["Anarchism"]) > 50_000
