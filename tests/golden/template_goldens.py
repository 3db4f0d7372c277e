#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes data/templates.json: small templates of our own, one construct or two each, and what Jinja makes of them as transformers sets it up.

    pip install transformers==5.23.0 jinja2==3.1.6 && python3 template_goldens.py

A case is [template, output], or [template, null] where Jinja raises. All see the variables below. The test is tests/unit/text/template_test.cc.
"""
import json
import pathlib

from transformers.utils.chat_template_utils import _compile_jinja_template

VARIABLES = {
    "messages": [
        {"role": "system", "content": "Be brief.", "n": 3},
        {"role": "user", "content": "  Héllo\n😀 <b> & 'q' \"d\" \n", "items": "shadowed"},
        {"role": "assistant", "content": None, "calls": [{"name": "f", "args": {"x": 1, "y": [1.0, None, True], "z": {"é": "ß\u0001\u007f"}}}]},
    ],
    "tools": None, "empty": [], "text": "a,b,,c", "words": " one  two\tthree\n", "uni": "ÄßΣΑΣ ﬁ ǆ İx", "numbers": [3, -1, 2.5, 10, 0, True],
    "names": ["bob", "Alice", "carol", "alice", "Bob"], "people": [{"n": "x", "a": {"b": 2}}, {"n": "y", "a": {"b": 1}}, {"n": "Z"}],
    "dict": {"b": 1, "a": 2, "C": 0, "items": [1]}, "deep": {"a": {"b": {"c": [10, 20, 30]}}}, "i": 7, "f": 0.1, "big": 1e16, "small": 1e-5, "t": True,
    "no": False, "html": "<a href='x'>&\"</a>", "nl": "l1\nl2\r\nl3\n\nl5", "long": "the quick brown fox jumps over the lazy dog",
}

TEXT = r"""
plain {{ i }} and {{ text }}
{{ i }}{{ f }} {{ big }} {{ small }} {{ t }} {{ no }} {{ tools }} {{ nothing }}|{{ 1e100 }} {{ 1.0 }} {{ 100000.0 }} {{ 12345678901234567.0 }} {{ 0.1 + 0.2 }} {{ -0.0 }} {{ 5e-324 }} {{ 1e22 }} {{ 123456789.125 }}
{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 10 / 5 }} {{ t + 1 }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 0x1f }} {{ 0b101 }} {{ 0o17 }} {{ 1_000 }} {{ 1_0.5 }} {{ 1e3 }} {{ 1.5E-3 }}
{{ "a" "b" 'c' }} {{ 'it\'s' }} {{ "tab\tnl\\n" }} {{ '\x41\u00e9\U0001F600\101' }} {{ 'a\qb' }} {{ '\é' }}
{{ 'a' ~ 1 ~ none ~ 1.5 ~ true ~ nothing ~ [1, 'x'] }}
{{ 'a' + 1 }}
{{ 'a' + 'b' }} {{ [1] + [2] }} {{ (1,) + (2, 3) }} {{ 'ab' * 3 }} {{ 2 * [0] }} {{ 'a' * -1 }}
{{ 1 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 != 2 }} {{ 3 >= 3 }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' == 1 }} {{ none == false }} {{ nothing == none }} {{ nothing == nothing }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ 'a' in 'cat' }} {{ 'x' not in 'cat' }} {{ 2 in [1, 2] }} {{ 'a' in dict }} {{ 'z' in dict }} {{ 1 in nothing }} {{ not 1 in [2] }} {{ 1 in (1,) }}
{{ 1 in 'a' }}
{{ 1 in 5 }}
{{ 1 in none }}
{{ true and 'x' }} {{ '' or 'y' }} {{ none and 1 }} {{ not [] }} {{ not 'a' }} {{ 0 or none }} {{ [] or {} or 0.0 or 'end' }}
{{ 'a' if t else 'b' }} {{ 'a' if no else 'b' }} {{ 'a' if no }}| {{ 1 if no else 2 if no else 3 }} {{ ('x' if t) ~ 'y' }}
{{ [1, 'a', none, true, 1.5, [2], (3,), {'k': 'v'}, ()] }}
{{ (1, 2) }} {{ 1, 2 }} {{ (1,) }} {{ () }} {{ [] }} {{ {} }} {{ {'a': 1, 2: 'b', none: [1], 'q"': "it's", 'both': "it's \"x\""} }}
{{ ["it's", 'q"', 'both\'"', '\n\t\r\\', 'é😀', '\x00\x7f\u200b\xad\u2028'] }}
{{ {'a': 1, 'a': 2} }} {{ {1: 'a', 1.0: 'b', true: 'c'} }}
{{ {[1]: 2} }}
{{ text[0] }} {{ text[-1] }} {{ text[1:3] }} {{ text[:-2] }} {{ text[::2] }} {{ text[::-1] }} {{ text[99] }}| {{ text[5:1] }}| {{ uni[1] }} {{ uni[-2:] }} {{ uni[2:5] }}
{{ numbers[1:4] }} {{ numbers[::-2] }} {{ numbers[-1] }} {{ numbers[-99:2] }} {{ numbers[4:-9:-1] }} {{ (1, 2, 3)[1:] }} {{ numbers[t] }} {{ numbers['x'] }}| {{ numbers[1.5] }}|
{{ text[::0] }}
{{ deep.a.b.c[1] }} {{ deep['a'].b['c'][0] }} {{ deep.a.x }}| {{ deep.a['x'] is defined }} {{ people.0.n }} {{ people[1].a.b }}
{{ deep.x.y }}
{{ nothing.x }}
{{ nothing['x'] }}
{{ nothing() }}
{{ none.x }}| {{ tools.x is defined }} {{ i.x is defined }}
{{ none.x.y }}
{{ messages[1].items is callable }} {{ messages[0].items() | list }} {{ messages[1]['items'] }} {{ dict['items'] }} {{ dict.items is callable }} {{ dict.keys()|list }} {{ dict.values()|list }}
{{ messages[0]['get'] is callable }} {{ messages[0].keys() }} {{ messages[0].values() }} {{ messages[0].items() }} {{ dict.get('a') }} {{ dict.get('q') }} {{ dict.get('q', 5) }}
{{ empty.append(1) }}
{{ empty.append }}|{{ empty.append is defined }}|{{ dict.update is defined }}|{{ dict.pop is defined }}
{{ dict.pop('a') }}
{{ text.__class__ }}|{{ text.__class__ is defined }}
{{ text.__class__.mro }}
{{ text.upper() }} {{ text.split(',') }} {{ text.split(',', 1) }} {{ words.split() }} {{ words.split(none, 1) }} {{ text.rsplit(',', 1) }} {{ words.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a b'.split(maxsplit=0) }}
{{ text.split('') }}
{{ '[' + words.strip() + ']' }} {{ '[' + words.lstrip() + ']' }} {{ '[' + words.rstrip() + ']' }} {{ 'xxaxbxx'.strip('x') }} {{ 'abcba'.lstrip('ab') }} {{ 'abcba'.rstrip('ab') }} {{ '\u00a0\u2003x\x1f'.strip() }}
{{ text.startswith('a') }} {{ text.startswith(('x', 'a')) }} {{ text.endswith('c') }} {{ text.startswith('b', 2) }} {{ text.endswith('b', 0, 3) }} {{ 'a'.startswith('') }}
{{ text.replace(',', ';') }} {{ text.replace(',', '', 1) }} {{ 'ab'.replace('', '-') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ text.find('b') }} {{ text.find('z') }} {{ text.rfind(',') }} {{ text.index('c') }} {{ text.count(',') }} {{ 'é😀x'.find('x') }}
{{ text.index('z') }}
{{ 'hello WORLD it\'s 3rd'.title() }} {{ 'hELLO'.capitalize() }} {{ 'aBc'.swapcase() }} {{ uni.upper() }} {{ uni.lower() }} {{ uni.title() }} {{ uni.capitalize() }} {{ 'ΑΣ ΑΣΑ Σ'.lower() }}
{{ uni|upper }} {{ uni|lower }} {{ uni|title }} {{ uni|capitalize }} {{ 'foo-bar (baz) {qux} <x> it\'s'|title }}
{{ ','.join(['a', 'b']) }} {{ ''.join(text) }} {{ '-'.join([]) }} {{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('x') }} {{ 'abc'.rpartition('x') }} {{ nl.splitlines() }} {{ nl.splitlines(true) }}
{{ ','.join([1]) }}
{{ 'x'.center(6) }}| {{ 'x'.ljust(3) }}| {{ 'x'.rjust(3, '*') }}| {{ '-5'.zfill(4) }} {{ 'ab'.center(5, '.') }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('bc') }} {{ 'a'.center(4) }}|
{{ '12'.isdigit() }} {{ ''.isdigit() }} {{ 'ab'.isalpha() }} {{ 'a1'.isalnum() }} {{ ' \n'.isspace() }} {{ 'AB'.isupper() }} {{ 'Ab'.islower() }} {{ 'é'.isascii() }} {{ 'É1'.isupper() }}
{{ '{} {} {}'.format(1, 'a', none) }} {{ '{0}{1}{0}'.format('x', 'y') }} {{ '{a:>5}|{b:<4}|{c:^5}|'.format(a=1, b='x', c=true) }} {{ '{:.2f} {:5d} {:05d} {:x} {:,} {:+d} {:e} {:.1%} {!r} {{}}'.format(1.005, 42, -42, 255, 1234567, 5, 12345.678, 0.256, 'q') }}
{{ '{.n} {[a]} {0[n]}'.format({'n': 1, 'a': 2}, {'a': 3}) }}
{{ '{:.3} {:10.4}| {:g} {} {:>{w}}'.format('abcdef', 3.14159265, 1e10, 1.0) if no }} {{ '{:.3}'.format('abcdef') }} {{ '{:10.4}|'.format(3.14159265) }} {{ '{:g}'.format(1e10) }} {{ '{:*^9}'.format('mid') }} {{ '{:=+6d}'.format(3) }}
{{ '{}'.format() }}
{{ '{'.format(1) }}
{{ '%s and %d and %.2f %r %5s|%-5s|%05d %x %% %c' % ('a', 3, 1.5, 'r', 'x', 'y', 42, 255, 'c') if no }} {{ '%s and %d and %.2f %r %5s|%-5s|%05d %x %%' % ('a', 3, 1.5, 'r', 'x', 'y', 42, 255) }} {{ '%(a)s' % {'a': 1} }} {{ '%s' % 5 }} {{ '%s %s'|format('a', 2) }} {{ '%i %e %g' % (3.9, 12345.678, 0.00001) }}
{{ '%d' % 'x' }}
{{ '%s %s' % ('a',) }}
{{ '%s' % (1, 2) }}
{% if t %}yes{% endif %} {% if no %}a{% elif i == 7 %}b{% else %}c{% endif %} {% if no %}a{% elif nothing %}b{% else %}c{% endif %} {% if no: %}x{% else: %}y{% endif %}
{% for m in messages %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ m.role }};{% endfor %}
{% for x in empty %}a{% else %}none{% endfor %} {% for x in nothing %}a{% else %}undef{% endfor %} {% for c in 'é😀' %}[{{ c }}]{% endfor %} {% for k in dict %}{{ k }} {% endfor %}
{% for x in 5 %}a{% endfor %}
{% for x in none %}a{% endfor %}
{% for x in numbers if x > 0 %}{{ loop.index }}:{{ x }} {% endfor %} {% for x in numbers if x > 99 %}{% else %}none{% endfor %} {% for x in numbers if x > 0 %}{% if loop.last %}{{ loop.length }}{% endif %}{% endfor %}
{% for x in numbers %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %} {% for x in [1, 2] %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}
{% for x in [1,1,2] %}{{ loop.changed(x) }} {{ loop.cycle('a', 'b') }};{% endfor %} {% for a in [1, 2] %}{% set outer = loop %}{% for b in 'xy' %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}
{% for k, v in dict.items() %}{{ k }}={{ v }},{% endfor %} {% for k, v in dict|items %}{{ k }}{% endfor %} {% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %} {% for i, x in [(1, 'a')] -%} {{ i }}{{ x }}{%- endfor %}
{% for a, b in [1] %}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %} {{ range(3) }} {{ range(1, 10, 3)|list }} {{ range(5, 0, -2)|list }} {{ range(0) }} {{ range(3)[1] }} {{ range(2, 8, 2) }}
{{ range(1000000)|length }}
{% set x = 1 %}{% for y in [1, 2] %}{{ x }}{% set x = x + y %}{{ x }} {% endfor %}{{ x }} {% if t %}{% set x = 9 %}{% endif %}{{ x }}
{% set ns = namespace(a=1, b=[]) %}{% for y in [1, 2, 3] %}{% set ns.a = ns.a + y %}{% set ns.b = ns.b + [y] %}{% endfor %}{{ ns.a }} {{ ns.b }} {{ ns.c }}| {{ ns }} {{ ns['a'] }} {{ ns.a is defined }} {{ ns is mapping }}
{% set ns = namespace({'q': 1}, r=2) %}{{ ns.q }}{{ ns.r }} {% set ns.q, y = 5, 6 %}{{ ns.q }}{{ y }}
{% set dict.x = 1 %}
{% set ns._x = 1 %}
{% set ns = namespace(_x=1) %}
{% set a, b = 1, 2 %}{{ a }}{{ b }} {% set (c, d) = [3, 4] %}{{ c }}{{ d }} {% set e = 1, 2 %}{{ e }} {% set a, b = b, a %}{{ a }}{{ b }} {% set q %}block {{ i }}{% endset %}[{{ q }}] {% set q | upper | trim %} x {{ i }} {% endset %}[{{ q }}]
{% set a, b = 1 %}
{% set x %}{% set inner = 5 %}{{ inner }}{% endset %}{{ x }}{{ inner }}|
{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(1, c=9) }} {{ m(b=1, a=2) }} {{ m() }}| {{ m is callable }} {{ m(1)|length }}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(z=2) }}
{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}
{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 'b', z=2) }} {% macro n() %}{{ later }}{% endmacro %}{% set later = 'seen' %}{{ n() }} {% macro o(n) %}{% if n > 0 %}{{ n }}{{ o(n - 1) }}{% endif %}{% endmacro %}{{ o(4) }}
{% macro m(x) %}<{{ caller(x + 1) }}>{% endmacro %}{% call(y) m(1) %}got {{ y }}{% endcall %} {% macro k() %}{{ caller is defined }}{% endmacro %}{{ k() }}{% call k() %}{% endcall %}
{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}
{% macro m() %}{% set i = 1 %}{{ i }}{% endmacro %}{{ m() }}{{ i }} {{ m(*[]) }} {% macro s(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ s(*[1, 2]) }} {{ s(**{'a': 3, 'b': 4}) }} {{ s(1, *[2]) }}
{% filter upper %}abc {{ i }}{% endfilter %} {% filter replace('a', 'b')|upper %}banana{% endfilter %} {% with a = 1, b = i %}{{ a }}{{ b }}{% endwith %}{{ a }}| {% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z }}|
{% raw %}{{ not }} {% this %}{% endraw %} {#- comment -#} x {# c #} y {% print 'p', i %} {% generation %}gen {{ i }}{% endgeneration %}
{{ [3, 1, 2]|sort }} {{ names|sort }} {{ names|sort(case_sensitive=true) }} {{ names|sort(reverse=true) }} {{ people[:2]|sort(attribute='a.b')|map(attribute='n')|list }} {{ numbers|sort }} {{ dict|dictsort }} {{ dict|dictsort(true) }} {{ {'x': 2, 'y': 1}|dictsort(by='value') }} {{ dict|dictsort(reverse=true) }}
{{ [1, 'a']|sort }}
{{ people|map(attribute='n')|list }} {{ people|map(attribute='a.b', default='-')|list }} {{ names|map('upper')|list }} {{ ['a,b']|map('replace', ',', ';')|join }} {{ people|map(attribute='q')|list|length }} {{ nothing|map('upper')|list }} {{ people|map('length')|list }}
{{ people|map(attribute='q')|join('|') }}|
{{ names|map('nofilter')|list }}
{{ numbers|select|list }} {{ numbers|select('odd')|list if no }} {{ numbers|reject('lt', 2)|list }} {{ numbers|select('>', 2)|list }} {{ messages|selectattr('role', 'equalto', 'user')|list|length }} {{ messages|selectattr('calls')|list|length }} {{ messages|rejectattr('role', 'in', ['user', 'system'])|map(attribute='role')|list }} {{ messages|selectattr('content', 'string')|list|length }} {{ people|selectattr('a', 'defined')|list|length }}
{% set g = names|map('upper') %}{{ g|list|length }} {{ g|list|length }} {{ (names|map('upper'))|first }} {% set h = [1, 2]|map('string') %}{{ h|first }}{{ h|list }} {{ 1 if (empty|map('upper')) else 2 }} {{ (names|map('upper')) is iterable }} {{ (names|map('upper')) is sequence }}
{{ (names|map('upper'))|length }}
{{ (names|map('upper'))|last }}
{{ names|join(', ') }} {{ numbers|join }} {{ people|join('-', attribute='n') }} {{ 'abc'|join('.') }} {{ nothing|join('x') }}| {{ [none, true, 1.0, nothing]|join('|') }}
{{ names|first }} {{ names|last }} {{ empty|first }}| {{ empty|last }}| {{ 'abc'|first }} {{ 'abc'|last }} {{ dict|first }} {{ names|length }} {{ 'é😀'|length }} {{ dict|count }} {{ nothing|length }} {{ names|reverse|list }} {{ 'abé'|reverse }} {{ names|unique|list }} {{ [1, 1.0, 2]|unique|list }} {{ numbers|min }} {{ numbers|max }} {{ numbers|sum }} {{ people[:2]|sum(attribute='a.b') }} {{ empty|min }}|
{{ 5|length }}
{{ none|length }}
{{ numbers|batch(4)|list }} {{ numbers|batch(4, 'x')|list }} {{ numbers|slice(4)|list }} {{ numbers|slice(4, '-')|list }} {% for g in people[:2]|groupby('n') %}{{ g.grouper }}={{ g.list|length }};{{ g[0] }}{% endfor %} {% for k, v in names|groupby(0) %}{{ k }}{{ v }}{% endfor %}
{{ nothing|default('d') }} {{ none|default('d') }} {{ none|default('d', true) }} {{ ''|default('e', boolean=true) }} {{ i|d(1) }} {{ nothing|default }}| {{ nothing.x|default('d') if no else 'ok' }} {{ deep.q|default(5) }}
{{ '  x '|trim }}| {{ 'xxaxx'|trim('x') }} {{ 5|trim }} {{ nothing|trim }}| {{ 5|string + 'a' }} {{ none|string }} {{ [1]|string|length }} {{ 'a'|list }} {{ dict|list }} {{ text|replace(',', '') }} {{ 'aaa'|replace('a', 'b', 1) }} {{ 5|replace(5, 6) }}
{{ '42'|int }} {{ 'x'|int }} {{ 'x'|int(-1) }} {{ '3.9'|int }} {{ 3.9|int }} {{ -3.9|int }} {{ '0x1f'|int(base=16) }} {{ 'z'|int(0, 36) }} {{ none|int(7) }} {{ ' 5 '|int }} {{ '1_000'|int }} {{ true|int }} {{ '1e3'|int }} {{ '2.5'|float }} {{ 'x'|float }} {{ 3|float }} {{ 'inf'|float }} {{ 'nan'|float }} {{ ''|float(1.5) }}
{{ -5|abs }} {{ -2.5|abs }} {{ (-5)|abs }} {{ 2.675|round(2) }} {{ 2.5|round }} {{ 3.5|round }} {{ 2.1|round(0, 'ceil') }} {{ 2.19|round(1, 'floor') }} {{ 7|round }} {{ 1234.5678|round(1) }}
{{ html|e }} {{ html|escape|escape }} {{ html|safe }} {{ (html|safe) + '<' }} {{ '<' + ('x'|safe) }} {{ (html|e) ~ '<' }} {{ ('<'|safe)|upper }} {{ ['<'|safe] }} {{ ('%s'|safe) % '<' }} {{ ('{}'|safe).format('<') }} {{ (','|safe).join(['<', '>'|safe]) }} {{ ('a<'|safe).replace('a', '<') }} {{ ('<'|e) is escaped }} {{ html|forceescape }} {{ ('a b'|safe).split()[0] + '<' }} {{ ('<x'|safe)[0] + '<' }} {{ ('<'|safe) * 2 + '>' }} {{ ('<'|safe) == '<' }}
{{ nl|indent }} {{ nl|indent(2, true) }} {{ nl|indent('> ', blank=true) }} {{ 'a\n\nb'|indent(1) }} {{ ''|indent }}| {{ 'x\n'|indent(first=true) }}|
{{ 5|indent }}
{{ long|truncate(20) }} {{ long|truncate(20, true) }} {{ long|truncate(42) }} {{ long|truncate(20, false, '…', 0) }} {{ long|wordcount }} {{ 'a'|center(5) }}| {{ 'a b/ü?&'|urlencode }}
{{ messages[2].calls|tojson }} {{ messages|tojson(indent=2) }}
{{ [1, 'a', none, true, 1.5, (2,), {}, [], {'é': '\u2028😀'}]|tojson }} {{ {'é': '😀\x7f'}|tojson(ensure_ascii=true) }} {{ {'b': 1, 'a': [1, 2]}|tojson(sort_keys=true) }} {{ {'b': 1, 'a': [1, 2]}|tojson(separators=(',', ':')) }} {{ [1, [2, {}], []]|tojson(indent=4) }} {{ [1]|tojson(indent=0) }} {{ [1, 2]|tojson(indent='--') }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }} {{ 'a"\\/\b\f\n\r\t\x01<>&\''|tojson }} {{ 1e400|tojson if no }} {{ 'inf'|float|tojson }} {{ {'a': 1}|tojson(indent=2, separators=(', ', ' = ')) }}
{{ nothing|tojson }}
{{ [nothing]|tojson }}
{{ range(3)|tojson }}
{{ (names|map('upper'))|tojson }}
{{ {(1, 2): 3}|tojson }}
{{ i is defined }} {{ nothing is defined }} {{ nothing is undefined }} {{ none is none }} {{ nothing is none }} {{ t is boolean }} {{ 1 is boolean }} {{ t is true }} {{ 1 is true }} {{ no is false }} {{ 1 is integer }} {{ t is integer }} {{ 1.0 is float }} {{ t is number }} {{ 'a' is string }} {{ dict is mapping }} {{ [] is mapping }} {{ [] is sequence }} {{ 'a' is sequence }} {{ dict is sequence }} {{ 5 is sequence }} {{ nothing is sequence }} {{ [] is iterable }} {{ 5 is iterable }} {{ nothing is iterable }} {{ none is iterable }} {{ range is callable }} {{ (1,) is sequence }} {{ range(2) is sequence }} {{ ('x'|safe) is string }}
{{ 4 is even }} {{ 3 is odd }} {{ 6 is divisibleby 3 }} {{ 6 is divisibleby(4) }} {{ 'a' is in 'abc' }} {{ 1 is in [1] }} {{ 'a' is lower }} {{ 'A' is upper }} {{ 1 is sameas 1 }} {{ none is sameas none }} {{ 1 is eq 1 }} {{ 1 is ne 1 }} {{ 2 is gt 1 }} {{ 2 is lessthan(1) }} {{ 'upper' is filter }} {{ 'odd' is test }} {{ 1 is not none }} {{ not 1 is none }} {{ 2 is ge 2 and 1 }} {{ 1 is equalto 1 }}
{{ 1 is nosuchtest }}
{{ 1|nosuchfilter }}
{{ 1 is string is string }}
{{ raise_exception('No: ' + text) }}
{{ i() }}
{{ text() }}
{{ text.nosuch() }}
{{ [1, 2].index(2) }} {{ [1, 1].count(1) }} {{ (1, 2).index(2) }} {{ dict.copy() }} {{ deep.a.copy() }}
{{ [1].index(5) }}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set _ = c.reset() %}{{ c.next() }} {% set j = joiner(' | ') %}{{ j() }}a{{ j() }}b{{ j() }}
{%- if t -%}  a  {%- endif -%}  b  {{- i -}}  c {%+ if t +%} d {%- endif %} e
{{ -i }} {{ +i }} {{ -f }} {{ - 1 - -1 }} {{ not not t }} {{ -t }}
{{ -text }}
{{ nothing + 1 }}
{{ nothing < 1 }}
{{ -nothing }}
{{ {'a': {'b': 1}}.a.b }} {{ [[1, 2], [3]][0][1] }} {{ 'abc'.upper().lower()[1:] }} {{ ('a', 'b')|join('-')|upper }} {{ (1 + 2)|string }} {{ -1|abs }} {{ 'x' ~ 'y'|upper }} {{ 1 + 2|string|length }} {{ {'}}': '%}'} }}
{{ {'a': [1, {'b': (2, 3)}]} == {'a': [1, {'b': (2, 3)}]} }} {{ [1] == (1,) }} {{ {'a': 1} == {'a': 1.0} }} {{ 'x' == ('x'|safe) }} {{ range(2) == range(2) }} {{ dict.keys() == dict.keys() }}
{{ i[1:] }}
{{ dict[:1] }}
{{ tools[1:] }}
{{ nothing[1:] }}
{{ '%s' % [1] }} {{ 'a' % [1] }} {{ 'a' % dict }} {{ t|abs }} {{ people|sort(attribute=0)|length }} {{ dict|urlencode }} {{ [(1, 'a b/')]|urlencode }} {{ numbers|slice(-1)|list }} {{ (','|safe).join([1, '<']) }} {{ [1]|truncate }}
{{ [[1]]|unique|list }}
{{ i|truncate }}
{{ namespace }}{{ x
{{ 1 +
{% if %}{% endif %}
{% for x in y %}
{% endif %}
{% nosuch %}
{{ 'unterminated }}
{# unterminated
{{ a b }}
{{ ) }}
{{ (1 }}
{% set 1 = 2 %}
{% set none = 2 %}
{% break %}
{{ ~ }}
{{ 'a' if }}
{{ foo(a=1, 2) }}
{{ text | }}
{{ }}
{{ a.b. }}
{{ a[] }}
""".strip("\n")

# Where line ends and white space at line starts count.
LINES = [
    "{% if t %}\n  a\n{% endif %}\nb\n", "a\n  {% if t %}\n  b\n  {% endif %}\nc\n\n", "  {{ i }}\n  {# c #}\n  x {% if t %} \n y{% endif %}\n",
    "a \n {%- if t %}\n b \n {%- endif %} \n c", "a\n\n  {{- i -}}  \n\n b", "a\r\n{% if t %}\r\nb\r{% endif %}c\r\n", "{%+ if t %}\n a{% endif +%}\nb",
    "  {%+ if t %}x{% endif %}", "\t {% set x = 1 %} \n{{ x }}", "{# a #}\n{# b -#}\n\n c", "x\n{% raw %}\n {{ y }}\n  {% endraw %}\nz",
    "x {%- raw -%} \n {{ y }} \n {%- endraw -%} \n z", "{% for m in messages %}\n  {{ m.role }}\n{% endfor %}\nend", "a\u00a0\u2003{%- if t %}b{% endif %}",
    "{{ 'a\nb' }}", "{{ 'a\r\nb'|length }}", "\n\n{{ i }}\n\n", "{% if t %}{# x #}\n{% endif %}\n", "{% set x %}\n a \n{% endset %}\n[{{ x }}]",
    "{% macro m(a) %}\n  <{{ a }}>\n{% endmacro %}\n{{ m(1) }}\n{{ m(2) }}", "  {%- if t %} a {% endif -%}  \n", "{{ i }}\n{% if t %}\n\n{% endif %}x", "",
    "\n", "{", "{ {", "}} %} #}", "{{'{{'}} {{ '{%' }}", "{% if t\n  and i %}x{% endif %}", "{{ {\n'a': 1,\n}\n }}", "{{ [1,\n2,] }}{{ (1,) }}{{ m(1,) if no }}",
]


def render(source):
    try:
        return _compile_jinja_template.__wrapped__(source).render(**json.loads(json.dumps(VARIABLES)))
    except Exception:  # noqa: BLE001 - any refusal
        return None


def main():
    cases = [[source, render(source)] for source in TEXT.split("\n") + LINES]
    lines = [json.dumps(case, ensure_ascii=True) for case in cases]
    out = '{"variables": ' + json.dumps(VARIABLES, ensure_ascii=True) + ',\n"cases": [\n' + ",\n".join(lines) + "\n]}\n"
    path = pathlib.Path(__file__).parent / "data" / "templates.json"
    path.write_text(out, encoding="ascii")
    print(f"{len(cases)} cases, {sum(c[1] is None for c in cases)} of them refused, {len(out)} bytes")


if __name__ == "__main__":
    main()
