"""Wikitext -> readable paragraphs; pure.

What MediaWiki itself takes out before parsing (comments, <ref>, <math>, ...) goes first, then all
templates, tables and files, found by one linear pass over their brackets. What is left is parsed by
mwparserfromhell and rendered in one walk. So an article costs less than a full parse, and a page with
thousands of brackets that are nested or never closed is refused before it costs minutes.

Dropped: templates but for those of TEMPLATES, tables, files, galleries, categories, interlanguage
links, references, formulas, code, comments, magic words, bare URLs, list marks, bold and italics,
headings with no text under them, and the sections of BOILERPLATE. Kept: link labels, list items
(one a line), headings with text under them (a line each), text of HTML tags and <nowiki>.
"""

from __future__ import annotations

import html
import re
from typing import Callable, Dict, List, Match, Optional, Tuple

import mwparserfromhell
from mwparserfromhell.nodes import HTMLEntity, Tag, Template, Text, Wikilink
from mwparserfromhell.wikicode import Wikicode

# Limits on a template that is kept: the parser's time grows with the square of its parameters.
MAX_TEMPLATE_LENGTH = 20_000  # characters
MAX_PARAMETERS = 200
SEPARATOR = "\ue000"  # keeps quotes apart, for private use; the parser would stop at "\0"
MAX_DEPTH = 100  # double brackets open at once; real pages have a dozen

BOILERPLATE = frozenset(
    "references|notes|footnotes|notes and references|references and notes|citations|sources|"
    "works cited|bibliography|further reading|external links|see also|"
    "einzelnachweise|weblinks|siehe auch|literatur|"
    "références|notes et références|liens externes|voir aussi|bibliographie|"
    "referencias|enlaces externos|véase también|bibliografía".split("|")
)

DROPPED_TAGS = (
    "ref|references|gallery|math|chem|ce|score|timeline|syntaxhighlight|source|code|pre|imagemap|"
    "inputbox|graph|hiero|mapframe|maplink|templatedata|templatestyles|categorytree|indicator|"
    "charinsert|includeonly|style|script|table"
)
BLOCK_TAGS = "p|br|hr|div|center|blockquote|poem|ul|ol|li|dl|dt|dd|tr|td|th|caption|h[1-6]"
INLINE_TAGS = (
    "b|i|u|s|em|strong|small|big|sub|sup|span|font|cite|q|abbr|bdi|bdo|del|ins|dfn|kbd|mark|rb|rp|"
    "rt|rtc|ruby|samp|strike|tt|var|wbr|data|time|thead|tbody|tfoot|nowiki|noinclude|onlyinclude|"
    "section|noindex"
)
EXTENSION = re.compile(rf"<!--|<(/?)(nowiki|{DROPPED_TAGS})\b([^<>]*)>", re.IGNORECASE)
EXTENSION_END = re.compile(rf"</(nowiki|{DROPPED_TAGS})\s*>", re.IGNORECASE)
POWER = re.compile(r"(?<=\d)<sup>(?=[-+−]?\d)")
BLOCK = re.compile(rf"</?(?:{BLOCK_TAGS})\b[^<>]*>", re.IGNORECASE)
INLINE = re.compile(rf"</?(?:{INLINE_TAGS}|{DROPPED_TAGS})\b[^<>]*>", re.IGNORECASE)

TEMPLATE_NAME = re.compile(r"\{{2,3}\s*([^|{}<>\[\]\n]*)")
DROPPED_LINK = re.compile(
    r"\[{2,3}\s*(?:(?i:file|image|media|category|datei|bild|kategorie|fichier|catégorie|archivo|imagen"
    r"|categoría|immagine|categoria|ficheiro|imagem|bestand|afbeelding|categorie|plik|grafika"
    r"|kategoria|fil|kategori|файл|изображение|картинка|категория|ファイル|画像|カテゴリ|文件|图像"
    r"|檔案|分类|分類|ملف|صورة|تصنيف|चित्र|श्रेणी)\s*:"
    r"|[a-z]{2,3}(?:-[a-z]+)*:[^\s|\]][^|\]\n]*\]\])"  # an article in another language
)
LABEL = r"(?:[^\[\]\n]|\[\[[^\[\]\n]*\]\])*"
EXTERNAL_LINK = re.compile(
    rf"\[(?:(?:https?|ftp|mailto):|//)[^\s\[\]]*(?:[^\S\n]({LABEL}))?\]", re.IGNORECASE
)
BARE_URL = re.compile(
    r"\b(?:https?|ftp)://[^\s\[\]{}|<>\"]*[^\s\[\]{}|<>\".,;:!?)']", re.IGNORECASE
)
# What the parser would try as an external link, over and over when it is not closed.
SCHEME = re.compile(
    r"(bitcoin|ftps?|geo|git|gopher|https?|ircs?|magnet|mailto|mms|news|nntp|redis|sftp|sips?|sms|ssh"
    r"|svn|tel|telnet|urn|worldwind|xmpp):|(?<=\[)//",
    re.IGNORECASE,
)
# The parser is left with double brackets only: it would try single ones and headings that are not
# closed over and over.
BRACKET_RUN = re.compile(r"\[+|\{+")
HEADING_START = re.compile("^=+", re.MULTILINE)
TABLE_MARK = re.compile(r"^[ \t:*#;]*(?:(\{\|)|\|\}(?!\}))", re.MULTILINE)
LIST_MARK = re.compile(r"^(?:[ \t]*[*#:;]+|-{4,})[ \t]*", re.MULTILINE)
QUOTES = re.compile("'{2,}")
HEADING = re.compile(r"(={1,6})(.+?)\1")

SPACES = re.compile(r"[^\S\n]+")
TIDY = tuple(
    (re.compile(pattern, re.MULTILINE), replacement)
    for pattern, replacement in (
        (r"\( ?(?:[,;:](?: |(?=\))))+", "("),  # (, 1900) (; born 1900)
        (r"(?: ?[,;]){1,9} ?\)", ")"),  # (1900, )
        (r" ?(?:\( ?[–—-]? ?\)|\[ ?\])", ""),  # () ( – ) []
        (r"([,;])(?: [,;]){1,9}", r"\1"),
        (r"\( ", "("),
        (r" +(?=[,.;:!?)](?:\s|$))", ""),
    )
)
MAGIC_WORD = re.compile(r"__([^\W\d_]{3,40})__")
RESIDUE = re.compile(
    r"\{\{+|\}\}+|\[\[+|\]\]+|</?ref\w*(?:[^<>\n]{0,200}>)?|&nbsp;|'{2,}", re.IGNORECASE
)


def clean_wikitext(text: str) -> str:
    r"""Turn the wikitext of a page into paragraphs, one a line, "" when no text is left.

    The result never holds "{{", "}}", "[[", "]]", "<ref", "&nbsp;", "''" or a magic word. Takes
    time about linear in the text. Raises ValueError on a page that the parser cannot manage, such as one
    with over MAX_DEPTH brackets inside each other or not closed.
    """
    text = _drop_extensions(text.replace("\x00", "").replace(SEPARATOR, ""))
    text = _drop_brackets(text, "{}", _is_kept_template)
    text = _drop_tables(text)
    text = _drop_brackets(text, "[]", _is_kept_link)
    text = BARE_URL.sub("", EXTERNAL_LINK.sub(lambda link: link[1] or "", text))
    text = SCHEME.sub(lambda url: f"{url[1]}&#58;" if url[1] else "&#47;/", text)
    text = HEADING_START.sub(lambda marks: "&#61;" * len(marks[0]), text)
    text = BRACKET_RUN.sub(_quote_odd_bracket, text)
    text = INLINE.sub("", BLOCK.sub("\n", POWER.sub("^", text))).replace("<", "&lt;")
    text = LIST_MARK.sub("", text)
    text = "\n".join(_drop_quotes(line) if "''" in line else line for line in text.split("\n"))
    try:
        text = _render(mwparserfromhell.parse(text, skip_style_tags=True))
    except (RecursionError, mwparserfromhell.parser.ParserError) as error:
        raise ValueError(f"wikitext: the parser failed: {type(error).__name__}") from error
    return "\n".join(_drop_empty_sections(_tidy(text).split("\n")))


def _drop_extensions(text: str) -> str:
    """Take out comments and the tags of DROPPED_TAGS with what they hold; quote what <nowiki> holds.

    As in MediaWiki, everything up to the first closing tag belongs to the tag, nothing in it is
    wikitext, and a tag that is never closed is no tag. A closing tag is looked for only when there
    is one, so the time is linear.
    """
    last_end = {match[1].lower(): match.start() for match in EXTENSION_END.finditer(text)}
    out: List[str] = []
    position = 0
    match = EXTENSION.search(text)
    while match:
        out.append(text[position : match.start()])
        position = match.end()
        name = (match[2] or "").lower()
        if not name:  # a comment; when not closed it runs to the end
            end = text.find("-->", position)
            position = len(text) if end < 0 else end + len("-->")
        elif match[1] or match[3].endswith("/") or last_end.get(name, -1) < position:
            out.append(SEPARATOR if name == "nowiki" else "")  # keeps quotes beside it apart
        else:
            end_tag = re.compile(rf"</{name}\s*>", re.IGNORECASE).search(text, position)
            assert end_tag
            if name == "nowiki":
                held = text[position : end_tag.start()]
                out.append(re.sub(r"[^\w\s&;]", lambda mark: f"&#{ord(mark[0])};", held))
            position = end_tag.end()
        match = EXTENSION.search(text, position)
    out.append(text[position:])
    return "".join(out)


def _drop_brackets(text: str, pair: str, is_kept: Callable[[str, int, int], bool]) -> str:
    """Take out what stands in double brackets unless it is kept, and brackets without a partner.

    pair     "{}" or "[]"; each partner is the nearest one that is free, as in nested parentheses
    is_kept  told the text, and where an outermost pair starts and ends
    """
    opening, closing = (re.escape(bracket) for bracket in pair)
    tokens: List[Tuple[int, int]] = []
    partner: Dict[int, int] = {}  # start of an opening token -> end of its partner, and back
    free: List[int] = []
    for run in re.finditer(rf"{opening}{{2,}}|{closing}{{2,}}", text):
        start, end = run.span()
        # Tokens are two brackets wide; the odd one of a run joins the outermost.
        cuts = list(range(start, end + 1, 2))
        if run[0][0] == pair[0]:
            cuts = [start, *(cut + (end - start) % 2 for cut in cuts[1:])]
        else:
            cuts[-1] = end
        for left, right in zip(cuts, cuts[1:]):
            tokens.append((left, right))
            if run[0][0] == pair[0]:
                free.append(left)
                if len(free) > MAX_DEPTH:
                    raise ValueError(
                        f"wikitext: over {MAX_DEPTH} brackets inside each other or not closed"
                    )
            elif free:
                partner[free[-1]] = right
                partner[left] = free.pop()
    out: List[str] = []
    position = 0
    for start, end in tokens:
        if start < position or (start in partner and partner[start] < start):
            continue
        if start not in partner or not is_kept(text, start, partner[start]):
            out.append(text[position:start])
            position = partner.get(start, end)
    out.append(text[position:])
    return "".join(out)


def _is_kept_template(text: str, start: int, end: int) -> bool:
    name = TEMPLATE_NAME.match(text, start)
    return (
        name is not None
        and _template_rule(name[1]) is not None
        and end - start <= MAX_TEMPLATE_LENGTH
        and text.count("|", start, end) <= MAX_PARAMETERS
    )


def _is_kept_link(text: str, start: int, end: int) -> bool:
    return DROPPED_LINK.match(text, start) is None


def _quote_odd_bracket(run: Match[str]) -> str:
    return f"&#{ord(run[0][0])};" * (len(run[0]) % 2) + run[0][len(run[0]) % 2 :]


def _drop_tables(text: str) -> str:
    """Take out "{|" to "|}", or only the first line of a table that is not closed."""
    out: List[str] = []
    free: List[int] = []
    tables: Dict[int, int] = {}  # start -> end
    for mark in TABLE_MARK.finditer(text):
        if mark[1]:
            free.append(mark.start())
            line_end = text.find("\n", mark.end())
            tables[mark.start()] = len(text) if line_end < 0 else line_end
        elif free:
            tables[free.pop()] = mark.end()
    position = 0
    for start, end in sorted(tables.items()):
        if start >= position:
            out.append(text[position:start])
            position = end
    out.append(text[position:])
    return "".join(out)


def _drop_quotes(line: str) -> str:
    """Take out the marks of bold and italics, and leave the apostrophes among them.

    Of four in a row one is an apostrophe, of more than five those over five. When both bold and
    italics stay open in a line, MediaWiki reads one ''' as an apostrophe and italics: the first
    after a word of one letter (l'''eau''), else after a longer word, else any.
    """
    runs = list(QUOTES.finditer(line))
    apostrophes = [max(0, len(run[0]) - 5) or int(len(run[0]) == 4) for run in runs]
    italics = sum(len(run[0]) == 2 or len(run[0]) >= 5 for run in runs)
    bolds = sum(len(run[0]) >= 3 for run in runs)
    candidates = [i for i, run in enumerate(runs) if len(run[0]) in (3, 4)]
    if italics % 2 and bolds % 2 and candidates:

        def rank(i: int) -> int:
            start = runs[i].start() + apostrophes[i]
            before = line[max(0, start - 2) : start]
            if before[-1:] == " ":
                return 2
            return 0 if before[:1] == " " else 1

        apostrophes[min(candidates, key=rank)] += 1
    kept = iter(apostrophes)
    return QUOTES.sub(lambda run: "'" * next(kept), line)


def _render(code: Wikicode) -> str:
    out: List[str] = []
    _render_into(code, out)
    return "".join(out)


def _render_into(code: Wikicode, out: List[str]) -> None:
    for node in code.nodes:
        if isinstance(node, Text):
            out.append(node.value)
        elif isinstance(node, Wikilink):
            label = "" if node.text is None else _render(node.text).rpartition("|")[2].strip()
            out.append(label or _render(node.title).strip().lstrip(":#"))
        elif isinstance(node, HTMLEntity):
            out.append(html.unescape(str(node)))
        elif isinstance(node, Template):
            rule = _template_rule(str(node.name))
            if rule is not None:
                arguments = {str(p.name).strip(): _render(p.value).strip() for p in node.params}
                arguments["0"] = str(node.name).strip()
                out.append(rule(arguments))
        elif isinstance(node, Tag) and node.contents is not None:
            _render_into(node.contents, out)


def _tidy(text: str) -> str:
    text = SPACES.sub(" ", text.replace(SEPARATOR, ""))
    for pattern, replacement in TIDY:
        text = pattern.sub(replacement, text)
    text = MAGIC_WORD.sub(lambda word: word[0] if word[1] != word[1].upper() else " ", text)
    return SPACES.sub(" ", RESIDUE.sub(" ", text))


def _drop_empty_sections(lines: List[str]) -> List[str]:
    """Lines with text, stripped, each after the headings that it is the first to stand under."""
    kept: List[str] = []
    headings: List[Tuple[int, str]] = []
    skipped_level = 0
    for line in lines:
        line = line.strip()
        heading = HEADING.fullmatch(line)
        if heading:
            level, title = len(heading[1]), heading[2].strip()
            if skipped_level and level > skipped_level:
                continue
            skipped_level = level if title.lower() in BOILERPLATE else 0
            headings = [above for above in headings if above[0] < level]
            if title and not skipped_level:
                headings.append((level, title))
        elif line and not skipped_level and not line.startswith(("|", "{|", "! ")):
            kept.extend(title for _, title in headings)
            headings = []
            kept.append(line)
    return kept


# --- inline templates without which a word would be missing --------------------------------------

Arguments = Dict[str, str]  # "1", "2", ... and named ones, rendered and stripped; "0" is the name
Rule = Callable[[Arguments], str]

MONTHS = (
    "January February March April May June July August September October November December".split()
)
RANGES = {"-": "–", "–": "–", "to": " to ", "and": " and ", "or": " or ", "by": " by "}
RANGES.update({"x": " × ", "×": " × ", "+/-": " ± ", "±": " ± "})
UNITS = {"C": "°C", "F": "°F", "km2": "km²", "m2": "m²", "cm2": "cm²", "m3": "m³", "km3": "km³"}
UNITS.update({"cm3": "cm³", "sqmi": "sq mi", "mi2": "sq mi", "sqft": "sq ft", "ft2": "sq ft"})
UNITS.update({"sqkm": "km²", "cuft": "cu ft", "ft3": "cu ft", "cumi": "cu mi", "LT": "long tons"})
NUMBER = re.compile(r"[-+−]?\d[\d.,/⁄+]*")


def _positional(arguments: Arguments) -> List[str]:
    values = []
    while str(len(values) + 1) in arguments:
        values.append(arguments[str(len(values) + 1)])
    return values


def _argument(key: str) -> Rule:
    return lambda arguments: arguments.get(key, "")


def _constant(text: str) -> Rule:
    return lambda arguments: text


def _prefixed(prefix: str) -> Rule:
    return lambda arguments: prefix + "–".join(_positional(arguments)[:2])


def _last(arguments: Arguments) -> str:
    return (_positional(arguments) or [""])[-1]


def _joined(arguments: Arguments) -> str:
    return "".join(_positional(arguments))


def _ship(arguments: Arguments) -> str:
    """{{HMS|Ajax|22|6}} -> HMS Ajax; {{ship|HMS|Ajax}} too."""
    values = _positional(arguments)
    if arguments["0"].lower() == "ship":
        return " ".join(values[:2])
    return " ".join([arguments["0"].upper(), *values[:1]])


def _quotation(arguments: Arguments) -> str:
    text = arguments.get("1") or arguments.get("text") or arguments.get("quote") or ""
    return f"\n{text}\n"


def _nihongo(arguments: Arguments) -> str:
    return next((arguments[key] for key in "132" if arguments.get(key)), "")


def _convert(arguments: Arguments) -> str:
    """{{convert|5|to|10|km|mi}} -> 5 to 10 km: what was measured, without what it converts to."""
    values = _positional(arguments)
    text, rest = "".join(map(_grouped, values[:1])), values[1:]
    while len(rest) >= 2 and rest[0] in RANGES:
        text, rest = text + RANGES[rest[0]] + _grouped(rest[1]), rest[2:]
    if rest:
        text += " " + UNITS.get(rest[0], rest[0])
    if len(rest) >= 3 and NUMBER.fullmatch(rest[1]) and rest[2] in ("in", "oz", "lb", "ft"):
        text += f" {rest[1]} {rest[2]}"
    return text


def _as_of(arguments: Arguments) -> str:
    if arguments.get("alt"):
        return arguments["alt"]
    year, month, day = (_positional(arguments) + ["", "", ""])[:3]
    if month.isdecimal() and 1 <= int(month) <= 12:
        month = MONTHS[int(month) - 1]
    words = ["Since" if arguments.get("since") else "As of", day, month, year]
    text = " ".join(word for word in words if word)
    return text[0].lower() + text[1:] if arguments.get("lc") else text


def _fraction(arguments: Arguments) -> str:
    values = _positional(arguments)[:3]
    if len(values) < 2:
        return "".join(f"1/{value}" for value in values)
    return " ".join([*values[:-2], f"{values[-2]}/{values[-1]}"])


def _value(arguments: Arguments) -> str:
    """{{val|6.02|e=23|u=mol}} -> 6.02×10^23 mol"""
    text = " ± ".join(_positional(arguments)[:2])
    if arguments.get("e"):
        text += f"×10^{arguments['e']}"
    unit = arguments.get("u") or arguments.get("ul") or ""
    return f"{text} {unit}".strip()


def _grouped(number: str) -> str:
    """1234567.5 -> 1,234,567.5; anything else as it is."""
    return re.sub(r"^\d{4,99}(?=\.\d+$|$)", lambda whole: f"{int(whole[0]):,}", number)


def _formatted_number(arguments: Arguments) -> str:
    return _grouped(arguments["0"].partition(":")[2].strip())


def _template_rule(name: str) -> Optional[Rule]:
    """How a template is rendered, or None when it is dropped."""
    name = " ".join(name.replace("_", " ").split())
    rule = TEMPLATES.get(name.lower())
    if rule is None and name[:5].lower() == "lang-":
        return _argument("1")
    if rule is None and name[:10].lower() == "formatnum:":
        return _formatted_number
    return rule


TEMPLATES: Dict[str, Rule] = {
    "convert": _convert,
    "cvt": _convert,
    "as of": _as_of,
    "frac": _fraction,
    "sfrac": _fraction,
    "fraction": _fraction,
    "val": _value,
    "e": lambda arguments: f"×10^{arguments.get('1', '')}",
    "nihongo": _nihongo,
    "angbr": lambda arguments: f"⟨{arguments.get('1', '')}⟩",
    "sup": lambda arguments: f"^{arguments.get('1', '')}",
    "transl": _last,
    "transliteration": _last,
    "circa": _prefixed("c. "),
    "c.": _prefixed("c. "),
    "floruit": _prefixed("fl. "),
    "fl.": _prefixed("fl. "),
    "reign": _prefixed("r. "),
    "us$": _prefixed("US$"),
    "£": _prefixed("£"),
    "€": _prefixed("€"),
    "'": _constant("'"),
    "'s": _constant("'s"),
    "' \"": _constant("' \""),
    "\" '": _constant("\" '"),
    "snd": _constant(" – "),
    "spaced ndash": _constant(" – "),
    "ndash": _constant("–"),
    "mdash": _constant("—"),
    "mdashb": _constant("—"),
    "nbsp": _constant(" "),
    "thinsp": _constant(" "),
    "spaces": _constant(" "),
    "·": _constant(" · "),
    "=": _constant("="),
    "okina": _constant("ʻ"),
    "ayin": _constant("ʿ"),
    "hamza": _constant("ʾ"),
}
TEMPLATES.update(
    dict.fromkeys(
        "nowrap|nobr|nobold|noitalic|small|smaller|big|larger|em|strong|sc|smallcaps|small caps|"
        "sub|math|mvar|mono|serif|unicode|polytonic|vanchor|visible anchor|abbr|tooltip|typo|"
        "not a typo|ill|interlanguage link|flag|flagcountry|flagu|railgauge|track gauge".split("|"),
        _argument("1"),
    )
)
TEMPLATES.update(dict.fromkeys("lang|langx|rtl-lang|script|wikt-lang".split("|"), _argument("2")))
TEMPLATES.update(dict.fromkeys("chem|chem2|sic|linktext".split("|"), _joined))
TEMPLATES.update(dict.fromkeys("ship|hms|uss|ss|ms|mv|rms|hmas|hmcs|sms|usns".split("|"), _ship))
TEMPLATES.update(
    dict.fromkeys(
        "quote|blockquote|bquote|cquote|quotation|poemquote|poem quote".split("|"), _quotation
    )
)
