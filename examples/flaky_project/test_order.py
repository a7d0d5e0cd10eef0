"""Tests of a project with a defect: the result of `join_names` depends on the hash seed."""

import unittest


def join_names(names: set[str]) -> str:
    """Join names; the order of a set of strings differs from process to process."""
    return ",".join(names)


class JoinNames(unittest.TestCase):
    def test_all_names_are_joined(self) -> None:
        self.assertEqual(sorted(join_names({"a", "b", "c"}).split(",")), ["a", "b", "c"])

    def test_names_are_sorted(self) -> None:
        names = {"ada", "bob", "cyd", "dan", "eve", "fay"}
        self.assertEqual(join_names(names), "ada,bob,cyd,dan,eve,fay")


if __name__ == "__main__":
    unittest.main()
