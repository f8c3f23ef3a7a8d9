"""The look of reports: their style sheet, and the parts that pages are made of.

`Markup` is text that is HTML already; anything else is escaped where it enters a page, so that a site's name or a
study's text can never become mark-up.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Final

PALETTE: Final = 12
"""How many colours series have (classes s0 .. s11)."""
_LIGHT: Final = "2466a8 c65a11 2e8b57 a2388f 8a6a00 10889b b5273c 6a4fc0 5d7f1e 8a563a c75b92 5a6672"
_DARK: Final = "6aaef0 f09a58 62c890 dd86cd d6b545 4fc6d8 f07f8d a995f2 a8cb63 cf9b7c f09cc4 a4b1bd"

_STYLE: Final = """
:root{--page:#f4f6f8;--card:#fff;--ink:#1b2733;--muted:#586673;--rule:#dbe1e7;--grid:#e6eaee;--hair:#8795a3;
--accent:#1d5fa3;--warn:#8a4b00;--warn-page:#fff4e2;LIGHT}
@media screen and (prefers-color-scheme:dark){:root{--page:#11161b;--card:#1a2128;--ink:#e4e9ee;--muted:#9ba8b5;
--rule:#303a44;--grid:#27313a;--hair:#7d8b99;--accent:#7ab8f5;--warn:#f3c27c;--warn-page:#33260f;DARK}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,
"Liberation Sans",sans-serif}
main,header,footer{max-width:58rem;margin:0 auto;padding:0 1.25rem}
header{padding-top:2.25rem}
h1{font-size:1.9rem;line-height:1.2;margin:0 0 .35rem;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{font-size:1.3rem;margin:2.5rem 0 .75rem;padding-top:.25rem}
h3{font-size:1rem;margin:1.5rem 0 .5rem}
p{margin:.5rem 0;max-width:48rem;overflow-wrap:anywhere}
a{color:var(--accent)}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;font-size:.85em}
pre{background:var(--card);border:1px solid var(--rule);border-radius:6px;padding:.9rem 1rem;overflow-x:auto;
white-space:pre-wrap;overflow-wrap:anywhere}
.meta{color:var(--muted)}
.state{display:inline-block;border:1px solid currentcolor;border-radius:1rem;padding:0 .6rem;font-size:.85rem}
.interrupted,.warning{color:var(--warn)}
.warning{background:var(--warn-page);border-left:4px solid currentcolor;padding:.6rem .9rem;border-radius:0 6px 6px 0}
nav ul{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;list-style:none;padding:0;margin:1rem 0 0;font-size:.9rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.2rem,1fr));gap:.75rem;margin:1rem 0}
.tiles div{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:.7rem .9rem}
.tiles dt{color:var(--muted);font-size:.82rem}
.tiles dd{margin:0;font-size:1.25rem;font-weight:600;line-height:1.3;font-variant-numeric:tabular-nums}
.tiles dd small{display:block;font-size:.78rem;font-weight:400;color:var(--muted)}
.figures{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:1rem}
figure{margin:0;background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:1rem 1.1rem .8rem;
min-width:0}
figure.wide{grid-column:1/-1}
figcaption{font-size:.88rem;color:var(--muted);margin-top:.5rem;overflow-wrap:anywhere}
figure h3{margin:0 0 .5rem}
.chart{overflow-x:auto}
.missing{background:var(--page);border-radius:6px;padding:1rem}
svg{display:block;width:100%;height:auto;font:12.5px system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",
sans-serif}
svg text{fill:var(--muted)}
svg .name{fill:var(--ink)}
svg .end{text-anchor:end}
svg .mid{text-anchor:middle}
.grid{stroke:var(--grid);fill:none}
.axis{stroke:var(--hair);fill:none}
.line{fill:none;stroke:var(--c);stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}
.dots{fill:none;stroke:var(--c);stroke-width:5.5;stroke-linecap:round}
.hair{--c:var(--hair);stroke-width:1;opacity:.42}
.hair:hover{--c:var(--accent);stroke-width:2.5;opacity:1}
.mean{--c:var(--ink);stroke-width:3.4}
.dots.mean{stroke-width:7}
.band{fill:var(--c);fill-opacity:.15;stroke:none}
.band.all{--c:var(--accent)}
.bar{fill:var(--c)}
.h0{fill:var(--c);fill-opacity:.1}.h1{fill:var(--c);fill-opacity:.3}.h2{fill:var(--c);fill-opacity:.5}
.h3{fill:var(--c);fill-opacity:.75}.h4{fill:var(--c);fill-opacity:1}
.legend{display:flex;flex-wrap:wrap;gap:.15rem 1rem;list-style:none;padding:0;margin:.4rem 0 0;font-size:.84rem}
.legend li{display:flex;align-items:center;gap:.4rem;max-width:18rem;overflow-wrap:anywhere}
.legend i{flex:none;width:1.3rem;height:0;border-top:3px solid var(--c)}
.legend i.mean{border-top-width:4px}
.legend i.block,.legend i.band{width:.9rem;height:.9rem;border:0;border-radius:2px;background:var(--c);
print-color-adjust:exact;-webkit-print-color-adjust:exact}
.legend i.band{opacity:.25}
.legend i.h0{opacity:.1}.legend i.h1{opacity:.3}.legend i.h2{opacity:.5}.legend i.h3{opacity:.75}
.legend i.none{border:1px solid var(--rule)}
.dash{stroke-dasharray:6 4}
.legend i.dash{border-top-style:dashed}
details{margin:.6rem 0 0;font-size:.9rem}
summary{cursor:pointer;color:var(--accent)}
.scroll{overflow:auto;max-height:34rem;background:var(--card);border:1px solid var(--rule);border-radius:8px;
margin:.6rem 0}
table{border-collapse:collapse;width:100%;font-size:.86rem;font-variant-numeric:tabular-nums}
th,td{padding:.4rem .5rem;text-align:left;vertical-align:top;border-bottom:1px solid var(--grid);
overflow-wrap:break-word;max-width:17rem;unicode-bidi:isolate}
th{font-weight:600}
tbody th{font-weight:500}
thead th{position:sticky;top:0;background:var(--card);vertical-align:bottom;
border-bottom:2px solid var(--rule);color:var(--muted)}
tbody tr:last-child>*{border-bottom:0}
tr.total>*{border-top:2px solid var(--rule);font-weight:600}
.n{text-align:right}
td.n{white-space:nowrap}
td code{display:inline-block;width:17ch;font-size:.78rem;overflow-wrap:anywhere}
dl.facts{display:grid;grid-template-columns:minmax(9rem,max-content) 1fr;gap:.35rem 1.25rem;margin:.6rem 0}
.facts dt{color:var(--muted)}
.facts dd{margin:0;overflow-wrap:anywhere;min-width:0}
footer{color:var(--muted);font-size:.85rem;padding-top:2rem;padding-bottom:2.5rem}
@media (max-width:46rem){.figures,dl.facts{grid-template-columns:minmax(0,1fr)}figure.wide svg{min-width:38rem}}
@media print{
@page{margin:15mm}
:root{--page:#fff}
body{font-size:10.5pt}
main,header,footer{max-width:none;padding:0}
nav,details{display:none}
h2{margin-top:1.5rem}
h2,h3{break-after:avoid}
.tiles{grid-template-columns:repeat(6,1fr);gap:.4rem}
.tiles div{padding:.4rem .5rem}
.tiles dd{font-size:1.05rem}
figure,.tiles div,.short,tr,.warning{break-inside:avoid}
.scroll{max-height:none;overflow:visible;border-radius:0}
thead th{position:static}
table{font-size:8pt}
th,td{padding:.2rem .4rem}
td code{font-size:6.5pt}
}
"""
_SHORT: Final = 25
"""Tables up to this many rows are kept on one printed page."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(value: object) -> Markup:
    """Anything as HTML: escaped, unless it is mark-up already."""
    if isinstance(value, Markup):
        return value
    # A lone surrogate in a name cannot be written to a file: it becomes a question mark.
    return Markup(html.escape(str(value).encode("utf-8", "replace").decode()))


def join(parts: Iterable[object]) -> Markup:
    """Parts one after the other."""
    return Markup("".join(text(part) for part in parts))


def element(name: str, content: object = None, /, **attributes: object) -> Markup:
    """One element; `class_` stands for class, ``_`` for ``-``; attributes that are None are left out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{written}/>" if content is None else f"<{name}{written}>{text(content)}</{name}>")


def paragraph(*sentences: object, class_: str | None = None) -> Markup:
    """Sentences, with spaces between them."""
    return element("p", Markup(" ".join(text(each) for each in sentences)), class_=class_)


def code(value: object) -> Markup:
    """A hash, a name in a program."""
    return element("code", str(value))


def section(key: str, title: str, *content: object) -> Markup:
    """A part of the page that can be linked to."""
    return element("section", join([element("h2", title), *content]), id=key)


def table(head: Sequence[str], rows: Sequence[Sequence[object]], *, title: str, total: bool = False) -> Markup:
    """A table whose first column names the row; columns of numbers are given as `Markup` by `number`."""
    body = [
        element("tr", join(map(_cell, row, range(len(row)))), class_="total" if total and row is rows[-1] else None)
        for row in rows
    ]
    numeric = [isinstance(value, Number) for value in (rows[0] if rows else head)]
    top = (
        element("th", name, scope="col", class_="n" if right else None)
        for name, right in zip(head, numeric, strict=True)
    )
    inner = join([element("thead", element("tr", join(top))), element("tbody", join(body))])
    short = "scroll short" if len(rows) <= _SHORT else "scroll"
    return element("div", element("table", inner), class_=short, role="region", aria_label=title, tabindex=0)


class Number(Markup):
    """A number as people read it: it stands to the right."""

    __slots__ = ()


def number(value: str) -> Number:
    """Mark a text as a number."""
    return Number(text(value))


def _cell(value: object, column: int) -> Markup:
    kind = "n" if isinstance(value, Number) else None
    return element("td", value, class_=kind) if column else element("th", value, scope="row", class_=kind)


def details(title: str, content: object) -> Markup:
    """Something that opens when asked for."""
    return element("details", join([element("summary", title), content]))


def facts(pairs: Iterable[tuple[str, object]]) -> Markup:
    """Names and values, one below the other."""
    return element("dl", join(join([element("dt", k), element("dd", v)]) for k, v in pairs), class_="facts")


def tiles(entries: Iterable[tuple[str, str, str]]) -> Markup:
    """A few numbers at a glance: name, value, remark."""
    inner = (
        element("div", join([element("dt", name), element("dd", join([value, element("small", note)]))]))
        for name, value, note in entries
    )
    return element("dl", join(inner), class_="tiles")


def figure(key: str, title: str, caption: object, chart: Markup | None, *extra: object, half: bool = False) -> Markup:
    """A chart with its caption; without a chart, the caption says why there is none."""
    below = element("figcaption", caption, class_="missing" if chart is None else None)
    inner = join([element("h3", title), "" if chart is None else chart, below, *extra])
    return element("figure", inner, id=key, class_=None if half else "wide")


def page(title: str, head: object, body: object, sections: Iterable[tuple[str, str]], foot: object) -> str:
    """A whole page that needs nothing else: its policy forbids scripts and every request."""
    links = join(element("li", element("a", name, href=f"#{key}")) for key, name in sections)
    nav = element("nav", element("ul", links), aria_label="Contents")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{text(title)}</title><style>{sheet()}</style></head>\n<body>"
        f"<header>{text(head)}{nav}</header>\n<main>{text(body)}</main>\n<footer>{text(foot)}</footer></body></html>\n"
    )


def sheet() -> str:
    """The style sheet of reports; the console's pages begin with it."""
    series = "".join(f".s{i}{{--c:var(--c{i})}}" for i in range(PALETTE))
    light, dark = (
        "".join(f"--c{i}:#{colour};" for i, colour in enumerate(colours.split())) for colours in (_LIGHT, _DARK)
    )
    return _STYLE.replace("LIGHT", light).replace("DARK", dark) + series
