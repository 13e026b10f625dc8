#!/usr/bin/env python3
"""Makes tests/data/jinja/cases.json: expressions and small templates with what Jinja2 makes of them.

    pip install jinja2==3.1.6
    python3 tests/tools/make_jinja_reference.py > tests/data/jinja/cases.json

The environment is that of Hugging Face transformers. Cases are drawn with a fixed seed: every
filter, test, method and operator on values of every kind, slices, nested expressions, statements
with whitespace control. Left out is what depends on Python alone: addresses of objects, integers
beyond 64 bits, generators where their laziness shows.
"""

import copy
import itertools
import json
import random
import re
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

VARIABLES = {
    "s": "Hello, World",
    "e": "",
    "w": "  two\twords \n",
    "l": "one\ntwo\n\nthree",
    "u": "na\u00efve \u4f60\u597d \U0001f600!",
    "h": "<b class=\"x\">&'",
    "n": "42",
    "i": 7,
    "z": 0,
    "m": -3,
    "f": 2.5,
    "g": -0.125,
    "t": True,
    "x": None,
    "a": [3, 1, 2],
    "b": ["b", "A", "c", "a"],
    "q": [],
    "d": {"k": "v", "n": 1, "items": [1]},
    "o": {},
    "r": [{"role": "user", "n": 2, "c": "hi"}, {"role": "bot", "n": 1, "c": ""}],
}
TEXTS = ["s", "e", "w", "l", "u", "h", "n"]
LISTS = ["a", "b", "q", "r"]
OTHERS = ["i", "z", "m", "f", "g", "t", "x", "d", "o", "nothing"]
NAMES = TEXTS + LISTS + OTHERS

FILTERS = """abs capitalize center(20) center(3) default('D') default('D',true) d(1) dictsort
 dictsort(by='value') dictsort(reverse=true) e escape first float float(1.5) forceescape
 indent indent(2) indent(2,true) indent(2,true,true) indent('> ') indent(width=3,first=true) int
 int(5) int(0,16) items|list join join('-') join(', ') last length count list lower max min
 replace('l','L') replace('o','',1) replace('','.') reverse|list round round(1) round(1,'floor')
 round(0,'ceil') safe sort sort(reverse=true) sort(case_sensitive=true) sort(attribute='n')
 string sum sum(start=1) sum(attribute='n') title tojson tojson(indent=2)
 tojson(separators=(',',':')) tojson(sort_keys=true) tojson(ensure_ascii=true) trim trim('Hd')
 truncate(5) truncate(5,true) truncate(5,true,'',0) truncate(8,false,'~',1) unique|list upper
 wordcount batch(2)|list batch(2,'-')|list groupby('role')|list map('upper')|list
 map(attribute='role')|list map(attribute='zz',default='D')|list map('string')|join(',')
 select|list select('string')|list select('gt',1)|list reject|list reject('none')|list
 selectattr('c')|list selectattr('role','equalto','user')|list rejectattr('c')|list
 rejectattr('n','gt',1)|map(attribute='c')|list slice(2)|list slice(2,'-')|list urlencode
 length|string attr('k') attr('upper') format(1) format('a','b') max(attribute='n')
 min(attribute='n')|tojson|length""".split()

TESTS = """defined undefined none string number integer float boolean mapping sequence iterable
 callable true false even odd lower upper eq(7) ne(7) lt(7) le(7) gt(2) ge(2) equalto('v')
 in([7,'42',none]) divisibleby(2) sameas(true) sameas(none) escaped filter test""".split()

METHODS = """upper() lower() title() capitalize() swapcase() casefold() strip() lstrip() rstrip()
 strip('Hd!') lstrip('He') rstrip(' d') split() split(',') split('o') split('o',1) split(',',-1)
 split(none,1) rsplit('o',1) rsplit('o') rsplit() rsplit(none,1) splitlines() splitlines(true)
 startswith('He') startswith('') endswith('d') endswith(('d','!')) startswith(('x','H'))
 removeprefix('Hello') removesuffix('World') replace('l','L') replace('l','',1) replace('','-')
 find('o') find('zz') rfind('o') index('o') rindex('o') count('o') count('l') count('') isalnum()
 isalpha() isdigit() isdecimal() isnumeric() islower() isupper() isspace() istitle() isascii()
 join(['a','b']) join([1]) join('xyz') ljust(15) ljust(15,'.') rjust(15) rjust(3) center(15)
 center(16,'*') zfill(6) format(1) format('a','b') partition(', ') partition('zz') rpartition('o')
 expandtabs(4) get('k') items()|list keys()|list values()|list get('zz') get('zz',1) copy()
 append(1) pop() pop('k') update({}) index(2) count(2) clear() sort() reverse() nothing
 nothing() find('o',5) startswith('W',7)""".split("\n")
METHODS = " ".join(METHODS).split()

BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in",
          "not in", "and", "or"]
LITERALS = ["1", "0", "-2", "1.5", "'x'", "\"it's\"", "[]", "[1,2]", "(1,2)", "(1,)", "()", "{}",
            "{'a':1}", "true", "False", "none", "'a' 'b'", "1_000", "1e3", "2e-7", "1e16", "0.1",
            "'\\n\\t\\\\'", "'\\u00e9'", "[none,true]", "{'k':[1,{'z':none}]}"]


def environment():
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                         extensions=[jinja2.ext.loopcontrols])

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    return made


def filters_and_tests():
    for name in NAMES:
        for one in FILTERS:
            yield "{{ %s|%s }}" % (name, one)
        for one in TESTS:
            yield "{{ %s is %s }}" % (name, one)
    for name in NAMES:
        for one in ["defined", "none", "string", "mapping"]:
            yield "{{ %s is not %s }}" % (name, one)
    for name, one in itertools.product(["n", "f", "i", "s"], ["divisibleby 2", "eq 7", "in a"]):
        yield "{{ %s is %s }}" % (name, one)
    for text in ["%s", "%d", "%5.1f|", "%r", "%-6s|", "%05d", "%x", "%%", "%s %s", "%q", "%", "%c"]:
        for value in ["s", "i", "f", "(1,2)", "a", "d", "n", "t"]:
            yield "{{ '%s' %% %s }}" % (text, value)


def methods():
    for name in TEXTS + ["a", "d", "i", "x", "nothing", "q"]:
        for one in METHODS:
            yield "{{ %s.%s }}" % (name, one)
    for form in ["{} {}", "{0}{0}", "{1}-{0}", "{a}", "{}{", "{:>5}", "{:*^7}|", "{:5}|{:<4}|",
                 "{!r}", "{:.2f}", "{:05d}", "{:+}", "{:,}", "{:x}", "{:q}"]:
        for given in ["'p', 2", "2, 'p'", "'p', a='q'", "2.5, 7", "1234567, true", "none, [1]"]:
            yield "{{ '%s'.format(%s) }}" % (form, given)


def operators(draw):
    values = NAMES + LITERALS
    for op in BINARY:
        for _ in range(42):
            yield "{{ %s %s %s }}" % (draw.choice(values), op, draw.choice(values))
    for value in values:
        yield "{{ -%s }}" % value
        yield "{{ +%s }}" % value
        yield "{{ not %s }}" % value
        yield "{{ %s }}" % value
        yield "{{ %s|tojson }}" % value
        yield "{{ [%s] }}" % value
        yield "{{ 'y' if %s else 'n' }}" % value


def slices(draw):
    bounds = ["", "", "0", "1", "2", "-1", "-2", "5", "-9", "99", "none"]
    for _ in range(250):
        name = draw.choice(["s", "u", "a", "b", "q", "e", "(1,2,3)", "r", "d", "i"])
        parts = [draw.choice(bounds) for _ in range(draw.choice([2, 2, 3]))]
        yield "{{ %s[%s] }}" % (name, ":".join(parts))
    for name, key in itertools.product(["s", "u", "a", "d", "r", "x", "nothing", "i", "q"],
                                       ["0", "-1", "9", "'k'", "'zz'", "none", "1.0", "true", "s"]):
        yield "{{ %s[%s] }}" % (name, key)
    for path in ["d.k", "d.items", "d['items']", "d.zz", "d.zz.y", "r.0.role", "r[0].c", "r[-1].n",
                 "d.k.upper()", "s.0", "a.1", "a.9", "nothing.a", "x.a", "d.get", "s.upper"]:
        yield "{{ %s is defined }}" % path
        yield "{{ %s|default('D') }}" % path


def expression(draw, depth):
    if depth == 0:
        return draw.choice(NAMES + LITERALS)
    below = lambda: expression(draw, depth - draw.choice([1, 1, 2]) if depth > 1 else 0)
    kind = draw.randrange(9)
    if kind == 0:
        return "(%s %s %s)" % (below(), draw.choice(BINARY), below())
    if kind == 1:
        return "%s|%s" % (below(), draw.choice(FILTERS))
    if kind == 2:
        return "(%s if %s else %s)" % (below(), below(), below())
    if kind == 3:
        return "(%s is %s)" % (below(), draw.choice(TESTS))
    if kind == 4:
        return "[%s, %s]" % (below(), below())
    if kind == 5:
        return "{'a': %s, 'b': %s}" % (below(), below())
    if kind == 6:
        return "%s.%s" % (draw.choice(TEXTS), draw.choice(METHODS))
    if kind == 7:
        return "not %s" % below()
    return "%s %s %s %s %s" % (below(), draw.choice(BINARY), below(), draw.choice(BINARY), below())


def statement(draw, depth, inside_loop):
    dash = lambda: draw.choice(["", "", "", "-", "-", "+"])
    tag = lambda body: "{%%%s %s %s%%}" % (dash(), body, draw.choice(["", "", "-", "+"]))
    space = lambda: draw.choice(["", " ", "\n", "  \n  ", "\n\n", "x", " y "])
    value = lambda: draw.choice(NAMES)
    block = lambda loop=inside_loop: body(draw, depth - 1, loop)
    kinds = ["print", "text", "set", "comment"]
    if depth > 0:
        kinds += ["if", "for", "macro", "with", "setblock", "filter", "call", "raw", "ns", "for",
                  "recursive"]
    if inside_loop:
        kinds += ["break", "loop", "loop"]
    kind = draw.choice(kinds)
    if kind == "print":
        return "{{%s %s %s}}" % (draw.choice(["", "-"]), value() + "|string|length",
                                 draw.choice(["", "-"]))
    if kind == "text":
        return draw.choice(["text", " a b ", "\n  c\n", "}}", "%}", "{", "#", "\t"])
    if kind == "set":
        return tag("set v = %s" % value()) + space() + "{{ v is defined }}"
    if kind == "comment":
        return "{#%s note %s#}" % (draw.choice(["", "-"]), draw.choice(["", "-"]))
    if kind == "if":
        return (tag("if %s" % value()) + block() + tag("elif %s" % value()) + block() +
                tag("else") + block() + tag("endif"))
    if kind == "for":
        head = draw.choice(["for v in a", "for v in b if v != 'A'", "for k, v in d.items()",
                            "for v in q", "for v in r", "for v in range(3)", "for v in s",
                            "for k, v in [(1, 2), (3, 4)]", "for v in nothing", "for k in d"])
        return tag(head) + block(True) + tag("else") + block() + tag("endfor")
    if kind == "recursive":
        return (tag("for v in [[1, [2]], 3] recursive") + "{{ loop.depth }}" +
                "{{ loop(v) if v is iterable else v }}" + tag("endfor"))
    if kind == "loop":
        return "{{ loop.%s }}" % draw.choice(
            ["index", "index0", "revindex", "revindex0", "first", "last", "length", "previtem",
             "nextitem|default('-')", "cycle('a', 'b')", "changed(1)", "depth", "depth0"])
    if kind == "break":
        return tag("if loop.index > 1") + tag(draw.choice(["break", "continue"])) + tag("endif")
    if kind == "macro":
        return (tag("macro mm(p, q2='Q')") + block(False) + "{{ p }}{{ q2 }}{{ varargs }}" +
                tag("endmacro") + draw.choice(["{{ mm(1) }}", "{{ mm(1, 2) }}", "{{ mm(q2=3) }}",
                                               "{{ mm(1, 2, 3) }}", "{{ mm() }}"]))
    if kind == "call":
        return (tag("macro cc(p)") + "<{{ caller() }}{{ p }}>" + tag("endmacro") +
                tag("call cc(%s)" % draw.choice(["1", "'x'", ""])) + block(False) + tag("endcall"))
    if kind == "with":
        return tag("with v = %s" % value()) + block() + "{{ v|string|length }}" + tag("endwith")
    if kind == "setblock":
        return tag("set v") + block() + tag("endset") + "[{{ v }}]"
    if kind == "filter":
        return tag("filter %s" % draw.choice(["upper", "trim", "replace('a','b')", "indent"])) + \
            block() + tag("endfilter")
    if kind == "raw":
        return tag("raw") + "{{ raw }}" + space() + tag("endraw")
    return (tag("set ns = namespace(c=0)") + tag("for v in a") + tag("set ns.c = ns.c + v") +
            tag("endfor") + "{{ ns.c }}")


def body(draw, depth, inside_loop):
    space = lambda: draw.choice(["", "", " ", "\n", "  \n  ", "\n\n", "-"])
    made = space()
    for _ in range(draw.choice([1, 1, 2])):
        made += statement(draw, depth, inside_loop) + space()
    return made


def result(env, source):
    try:
        # |indent of a list appends to that very list.
        return env.from_string(source).render(**copy.deepcopy(VARIABLES))
    except Exception:  # noqa: BLE001, any failure is what is recorded
        return None


def of_python_alone(source, text):
    """Whether the outcome shows what no other engine has."""
    if re.search(r"-2 \*\*", source):  # of a literal; a variable goes by the rules
        return True
    if text is not None:
        if re.search(r"<(generator|bound|built-in|method|function|dict_|Cycler|Macro)| at 0x", text):
            return True
        if re.search(r"\d{19}", text) or re.search(r"\bb'|dict_(items|keys|values)", text):
            return True
        return "Undefined" in text or "jinja2" in text or "\u200b" in text
    return False


def main():
    draw = random.Random(20261130)
    env = environment()
    sources = list(filters_and_tests()) + list(methods()) + list(operators(draw))
    sources += list(slices(draw))
    sources += ["{{ %s }}" % expression(draw, draw.choice([2, 3, 3])) for _ in range(1500)]
    sources += [body(draw, draw.choice([1, 2, 2, 3]), False) for _ in range(900)]
    kept = []
    for source in dict.fromkeys(sources):
        text = result(env, source)
        if of_python_alone(source, text) or (text is not None and len(text) > 300):
            continue
        if text is None and draw.random() < 0.6:  # what fails, fails for few reasons
            continue
        kept.append([source, text])
    write = sys.stdout.write
    dump = lambda value: json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    write('{"jinja2":%s,"context":%s,"cases":[\n' % (dump(jinja2.__version__), dump(VARIABLES)))
    write(",\n".join(dump(case) for case in kept))
    write("\n]}\n")
    print("%d cases, %d of them errors" % (len(kept), sum(text is None for _, text in kept)),
          file=sys.stderr)


if __name__ == "__main__":
    main()
