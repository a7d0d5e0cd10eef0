"""Draw a diagram of box-drawing characters as SVG, with text that stays text and the colours of the page.

The source stays readable in an editor and in a terminal: `┌─┐│└┘├┤┬┴┼` are lines, `▶◀▲▼` are arrows, and
everything else is text. A closed rectangle gets a background; a rectangle inside another one a second one.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDTH, HEIGHT = 8, 18
"""size of a character in pixels"""
RADIUS = 5
MARGIN = 4
# The sides of its cell that a line character connects: left, right, up, down.
LINES = {
    "─": "lr", "│": "ud", "┌": "rd", "┐": "ld", "└": "ru", "┘": "lu", "├": "rud", "┤": "lud", "┬": "lrd",
    "┴": "lru", "┼": "lrud",
}  # fmt: skip
CORNERS = {"┌", "┐", "└", "┘"}
# Arrow heads as corner points, in pixels from the centre of the cell, and the side of the line.
ARROWS = {
    "▶": ((-4, -5), (4, 0), (-4, 5), "l"),
    "◀": ((4, -5), (-4, 0), (4, 5), "r"),
    "▲": ((-5, 4), (0, -5), (5, 4), "d"),
    "▼": ((-5, -4), (0, 5), (5, -4), "u"),
}


def draw(source: str) -> str:
    """Return the SVG element of a diagram."""
    rows = [row.rstrip() for row in source.strip("\n").split("\n")]
    columns = max(map(len, rows))
    grid = [row.ljust(columns) for row in rows]
    width, height = columns * WIDTH + 2 * MARGIN, len(grid) * HEIGHT + 2 * MARGIN
    body = "".join([*_boxes(grid), _lines(grid), *_arrows(grid), *_texts(grid)])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-MARGIN} {-MARGIN} {width} {height}" '
        f'width="{width}" height="{height}">{body}</svg>'
    )


def loose_ends(source: str) -> list[str]:
    """The vertical lines that end at nothing, as `line:column`; they show that a row is shifted."""
    grid = source.split("\n")
    found = []
    for row, cells in enumerate(grid):
        for column, character in enumerate(cells):
            sides = LINES.get(character, "")
            for side, other in (("u", row - 1), ("d", row + 1)):
                is_inside = 0 <= other < len(grid) and column < len(grid[other])
                if side in sides and not (is_inside and grid[other][column].strip()):
                    found.append(f"{row + 1}:{column + 1}")
    return found


def _center(row: int, column: int) -> tuple[float, float]:
    return column * WIDTH + WIDTH / 2, row * HEIGHT + HEIGHT / 2


def _boxes(grid: list[str]) -> Iterator[str]:
    """Yield the background of each closed rectangle, outer ones first."""
    for top, row in enumerate(grid):
        for left, character in enumerate(row):
            if character != "┌":
                continue
            # The upper border may contain a title.
            right = row.find("┐", left)
            bottom = _run("".join(each[left] for each in grid), top + 1, "└")
            if bottom and right == _run(grid[bottom], left + 1, "┘"):
                (x, y), (to_x, to_y) = _center(top, left), _center(bottom, right)
                size = f'width="{to_x - x}" height="{to_y - y}"'
                yield f'<rect class="box" x="{x}" y="{y}" {size} rx="{RADIUS}"/>'


def _run(cells: str, start: int, end: str) -> int | None:
    """The index of `end` after nothing but lines and arrows."""
    for index in range(start, len(cells)):
        if cells[index] == end:
            return index
        if cells[index] not in LINES and cells[index] not in ARROWS:
            return None
    return None


def _lines(grid: list[str]) -> str:
    paths = []
    for row, cells in enumerate(grid):
        for column, character in enumerate(cells):
            if character in CORNERS:
                paths.append(_corner(row, column, LINES[character]))
            elif character in LINES or character in ARROWS:
                sides = LINES[character] if character in LINES else ARROWS[character][3]
                sides += _crossing(grid, row, column) if character in ARROWS else ""
                x, y = _center(row, column)
                paths += [f"M{x} {y}{_to_side(side)}" for side in sides]
    return f'<path class="line" d="{"".join(paths)}"/>'


def _crossing(grid: list[str], row: int, column: int) -> str:
    """The sides of the line that an arrow ends on, if it ends on the side of a box."""
    if grid[row][column] in "▶◀":
        ends, line = "ud", (_sides(grid, row - 1, column), _sides(grid, row + 1, column))
        return ends if "d" in line[0] and "u" in line[1] else ""
    ends, line = "lr", (_sides(grid, row, column - 1), _sides(grid, row, column + 1))
    return ends if "r" in line[0] and "l" in line[1] else ""


def _sides(grid: list[str], row: int, column: int) -> str:
    is_inside = 0 <= row < len(grid) and 0 <= column < len(grid[row])
    return LINES.get(grid[row][column], "") if is_inside else ""


def _to_side(side: str) -> str:
    return {"l": f"h{-WIDTH / 2}", "r": f"h{WIDTH / 2}", "u": f"v{-HEIGHT / 2}", "d": f"v{HEIGHT / 2}"}[side]


def _corner(row: int, column: int, sides: str) -> str:
    x, y = _center(row, column)
    to_x = x + (WIDTH / 2 if "r" in sides else -WIDTH / 2)
    to_y = y + (HEIGHT / 2 if "d" in sides else -HEIGHT / 2)
    near_y = y + (RADIUS if "d" in sides else -RADIUS)
    return f"M{to_x} {y}Q{x} {y} {x} {near_y}V{to_y}"


def _arrows(grid: list[str]) -> Iterator[str]:
    for row, cells in enumerate(grid):
        for column, character in enumerate(cells):
            if character in ARROWS:
                x, y = _center(row, column)
                if _crossing(grid, row, column):  # the tip touches the line
                    x, y = x - ARROWS[character][1][0], y - ARROWS[character][1][1]
                points = " ".join(f"{x + dx},{y + dy}" for dx, dy in ARROWS[character][:3])
                yield f'<polygon class="arrow" points="{points}"/>'


def _texts(grid: list[str]) -> Iterator[str]:
    """Yield each text; two spaces or a line end it, so that columns stay aligned with any font."""
    for row, cells in enumerate(grid):
        plain = "".join(" " if each in LINES or each in ARROWS else each for each in cells)
        column = 0
        for part in plain.split("  "):
            text = part.strip()
            if text:
                x, y = (column + part.index(text)) * WIDTH, row * HEIGHT + HEIGHT * 0.72
                yield f'<text x="{x}" y="{y:g}" textLength="{len(text) * WIDTH}">{escape(text)}</text>'
            column += len(part) + 2
