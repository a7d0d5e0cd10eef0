"""Records of runs for tests of the timeline, and a parser for its pages."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import strategies as st

from holdfast.workflow import RunRecord, StepLog

ANY_TEXT = st.text(st.characters(), max_size=80) | st.sampled_from(
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "</style>",
        "&lt;b&gt;",
        "<!--",
        "]]>",
        "' x='",
    ]
)
STARTED = 1_700_000_000.0


def run_of(*steps, seconds=10.0, **fields):
    return RunRecord(
        **{
            "id": "r1", "workflow": "up", "command": "up", "subject": "dev", "started": STARTED,
            "outcome": "finished", "seconds": seconds, "steps": list(steps), **fields,
        }
    )  # fmt: skip


def ran(step, start, seconds, outcome="finished", **fields):
    return StepLog(step=step, outcome=outcome, at=STARTED + start, seconds=seconds, tries=1, **fields)


class HtmlRecorder(HTMLParser):
    """Records the tags, attributes and texts of a piece of HTML."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.tags, self.text = [], ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def handle_decl(self, decl):
        assert decl == "doctype html"

    def handle_comment(self, data):
        raise AssertionError(data)

    handle_pi = handle_comment
