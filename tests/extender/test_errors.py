from __future__ import annotations

import inspect

from extender import errors


def all_errors() -> list[type[errors.ExtenderError]]:
    found = [member for _, member in inspect.getmembers(errors, inspect.isclass)]
    return [member for member in found if issubclass(member, errors.ExtenderError)]


def test_every_error_has_a_code_of_its_own_that_is_its_name():
    assert [error.code for error in all_errors()] == [error.__name__ for error in all_errors()]


def test_the_drawn_tree_names_every_error():
    for error in all_errors():
        assert f" {error.__name__} " in (errors.__doc__ or "").replace("\n", " \n"), error.__name__


def test_a_body_too_large_says_how_large_and_what_is_read():
    assert str(errors.BodyTooLarge(1_000, 10)) == "body of 1000 bytes, at most 10 are read"
