from __future__ import annotations

import importlib
import inspect
import pkgutil

import extender
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


def test_what_agents_may_do_wrong_has_its_place_in_the_tree():
    for error in (errors.InvalidReport, errors.UnknownNode, errors.NotAllowed):
        assert error.__bases__[0] is errors.ExtenderError


def test_no_module_has_an_error_of_the_family_that_the_tree_does_not_draw():
    for module in pkgutil.iter_modules(extender.__path__, "extender."):
        if module.name != "extender.__main__":
            importlib.import_module(module.name)
    family = {
        error for error in _family(errors.ExtenderError) if not error.__module__.startswith("extender.simulation")
    }
    drawn = (errors.__doc__ or "").split()
    assert {error.__name__ for error in family} <= set(drawn)


def _family(root: type[Exception]) -> set[type[Exception]]:
    return {root}.union(*(_family(child) for child in root.__subclasses__()))
