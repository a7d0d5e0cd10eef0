"""Text of other programs never becomes markup."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from tests.support.timeline_records import ANY_TEXT, HtmlRecorder

from holdfast.timeline.markup import Markup, element, escape, fill_template, with_commands


@given(ANY_TEXT, ANY_TEXT)
def test_text_and_attributes_never_create_elements(text, attribute):
    parsed = HtmlRecorder(element("p", text, title=attribute, data_x="1"))
    assert [tag for tag, _ in parsed.tags] == ["p"]
    (attributes,) = (attributes for _, attributes in parsed.tags)
    assert set(attributes) == {"title", "data-x"}


@given(st.text(st.characters(exclude_categories=["C", "Z"]), max_size=80))
def test_printable_text_is_read_back_unchanged(text):
    parsed = HtmlRecorder(element("p", text, title=text))
    assert parsed.text == text
    assert parsed.tags == [("p", {"title": text})]


@given(ANY_TEXT)
def test_no_control_character_or_surrogate_reaches_the_page(text):
    escaped = escape(text)
    escaped.encode()
    assert all(character.isprintable() or character in "\n\t" for character in escaped)


def test_direction_marks_and_null_are_visible():
    assert escape("a\u202eb\0c") == "a\\u202eb\\x00c"


def test_terminal_colours_are_removed():
    assert escape("\x1b[31mred\x1b[0m \x1b]0;title\x07") == "red \\x1b]0;title\\x07"


def test_markup_is_not_escaped_twice():
    assert element("p", element("b", "<")) == "<p><b>&lt;</b></p>"


def test_attributes_without_value_are_left_out():
    assert element("input", hidden=True, value=None, checked=False, class_="x") == '<input hidden class="x">'


def test_attribute_names_are_checked():
    with pytest.raises(ValueError, match="not a valid attribute name"):
        element("p", **{"onclick=x ": "y"})


@given(ANY_TEXT)
def test_commands_are_code_and_nothing_else_is_an_element(text):
    parsed = HtmlRecorder(with_commands(f"Run `holdfast up` {text}".replace("\r", "")))
    assert {tag for tag, _ in parsed.tags} == {"code"}


@given(ANY_TEXT)
def test_values_of_a_template_never_create_elements(text):
    filled = fill_template(Markup('<p title="$title">$text</p>'), title=text, text=text)
    assert [tag for tag, _ in HtmlRecorder(filled).tags] == ["p"]


def test_template_keeps_markup_and_placeholders_in_values():
    assert fill_template(Markup("<p>$a$b</p>"), a=element("b", "$b"), b="<") == "<p><b>$b</b>&lt;</p>"
