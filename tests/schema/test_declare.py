"""Declared messages: fields, defaults, comparison, layouts."""

from __future__ import annotations

import copy
import pickle

import pytest

from kohort.schema import BYTES, INT16, INT32, STRING, VersionRange, array, field, struct
from kohort.schema.declare import NO_VERSIONS, layout_of, maker


@struct()
class Point:
    """A point."""

    x: int = field(INT32)
    y: int = field(INT32, default=-1)


@struct(versions="0-3", flexible="2+")
class Shape:
    """Several points with a name."""

    name: str = field(STRING)
    label: str | None = field(STRING, nullable="0+", default=None)
    points: list[Point] = field(array(Point))
    centre: Point = field(Point)
    weight: int = field(INT16, versions="1-2", default=7, ignorable=True)
    blob: bytes = field(BYTES, versions="3+", tag=1)
    hint: str = field(STRING, versions="2+", tag=0, default="none")


def test_every_field_has_its_default_and_takes_a_keyword() -> None:
    shape = Shape()
    assert (shape.name, shape.label, shape.points, shape.weight) == ("", None, [], 7)
    assert shape.centre == Point(x=0, y=-1)
    assert Shape(name="a", points=[Point(x=1)]).points[0].x == 1
    with pytest.raises(TypeError):
        Shape("a")  # type: ignore[call-arg]  # by place: only keywords are taken
    with pytest.raises(TypeError, match="colour"):
        Shape(colour=1)  # type: ignore[call-arg]  # no such field


def test_lists_and_structs_are_not_shared_between_objects() -> None:
    first, second = Shape(), Shape()
    first.points.append(Point())
    first.centre.x = 5
    assert second == Shape()


def test_a_maker_makes_the_same_messages_as_the_class() -> None:
    make = maker(Shape)
    first, second = make(name="a", weight=3), make()
    assert first == Shape(name="a", weight=3)
    first.points.append(Point())
    assert second == Shape()
    with pytest.raises(TypeError, match="colour"):
        make(colour=1)  # type: ignore[call-arg]  # no such field


def test_messages_are_slotted_and_mutable() -> None:
    shape = Shape()
    shape.name = "b"
    with pytest.raises(AttributeError):
        shape.colour = 1  # type: ignore[attr-defined]  # no such field
    with pytest.raises(TypeError, match="unhashable"):
        hash(shape)


def test_messages_compare_by_class_and_content() -> None:
    assert Shape(name="a") == Shape(name="a")
    assert Shape(name="a") != Shape(name="b")
    other: object = Point()
    assert Shape() != other
    assert Shape() != None  # noqa: E711


def test_messages_are_copied_and_pickled() -> None:
    shape = Shape(name="a", points=[Point(x=3)])
    assert copy.deepcopy(shape) == shape
    assert pickle.loads(pickle.dumps(shape)) == shape


def test_repr_shows_changed_fields_and_cuts_long_values() -> None:
    assert repr(Shape()) == "Shape()"
    assert repr(Shape(name="a", blob=bytes(25))) == "Shape(name='a', blob=<25 bytes>)"
    long = repr(Shape(points=[Point(x=n) for n in range(1, 10)]))
    assert long == "Shape(points=[Point(x=1), Point(x=2), Point(x=3), Point(x=4), … 9 in all])"


def test_a_layout_lists_the_fields_of_each_version() -> None:
    layout = layout_of(Shape)
    assert (layout.name, layout.versions, layout.flexible) == ("Shape", (0, 3), (2, 32_767))
    everywhere = ["name", "label", "points", "centre"]
    assert [f.name for f in layout.present(0)] == everywhere
    assert [f.name for f in layout.present(1)] == [*everywhere, "weight"]
    assert [f.name for f in layout.absent(0)] == ["weight", "blob", "hint"]
    assert [f.name for f in layout.tagged(3)] == ["hint", "blob"]
    assert [f.name for f in layout.present(3)] == everywhere


def test_other_classes_have_no_layout() -> None:
    with pytest.raises(TypeError, match="int is not a message"):
        layout_of(int)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0-4", (0, 4)), ("3", (3, 3)), ("2+", (2, 32_767)), ("none", NO_VERSIONS)],
)
def test_version_ranges_are_written_as_kafka_does(text: str, expected: tuple[int, int]) -> None:
    assert VersionRange.parse(text) == expected


def test_version_ranges_contain_their_ends() -> None:
    span = VersionRange(2, 4)
    assert [n for n in range(7) if n in span] == [2, 3, 4]
    assert 0 not in NO_VERSIONS
    text: object = "3"
    assert text not in span
    assert str(span) == "2-4"


def test_two_fields_cannot_share_a_tag() -> None:
    with pytest.raises(TypeError, match=r"Twice.*tag 3"):

        @struct()
        class Twice:
            a: int = field(INT32, tag=3)
            b: int = field(INT32, tag=3)
