"""The drawing of a workflow: the places of the boxes, and the words in them."""

import pytest

from django_pgqueue.admin import workflow_graph
from django_pgqueue.admin.workflow_graph import DOWN, TO_THE_SIDE, bar_of, graph_of
from django_pgqueue.insights.workflow_info import StageLine


def stage(number: int, *behind: int, **values) -> StageLine:
    columns = {
        "name": f"stage {number}",
        "status": "open",
        "opens_when": "succeeded",
        "is_sealed": True,
        "is_moving": False,
        "members": 10,
        "opened_at": None,
        "ended_at": None,
        "killed_by": None,
        "is_of_stuck": False,
        "edges": tuple((one, "") for one in behind),
    }
    return StageLine(id=number, **columns | values)


def test_each_box_is_behind_all_that_its_stage_waits_for():
    graph = graph_of([stage(1, 2, 3, 5), stage(2, 4), stage(3, 4), stage(4, 5), stage(5)], is_tall=False)
    x = {box.stage.id: box.x for box in graph.boxes}
    assert x[1] < x[2] == x[3] < x[4] < x[5]
    assert len(graph.edges) == 6
    assert len({(box.x, box.y) for box in graph.boxes}) == 5
    assert max(box.x + box.size.wide for box in graph.boxes) <= graph.width
    assert max(box.y + box.size.high for box in graph.boxes) <= graph.height


def test_tall_drawing_goes_down_and_three_boxes_are_as_wide_as_a_phone():
    graph = graph_of([stage(1, 2, 3, 4), stage(2), stage(3), stage(4)], is_tall=True)
    y = {box.stage.id: box.y for box in graph.boxes}
    assert y[1] < y[2] == y[3] == y[4]
    assert graph.width <= 360


def test_stages_are_in_the_order_of_those_before_them():
    graph = graph_of([stage(1, 6), stage(2, 5), stage(3, 4), stage(4), stage(5), stage(6)], is_tall=False)
    y = {box.stage.id: box.y for box in graph.boxes}
    assert y[1] == y[6] < y[2] == y[5] < y[3] == y[4]


def test_order_of_ids_need_not_be_that_of_the_edges():
    graph = graph_of([stage(1), stage(2, 1), stage(3, 2)], is_tall=False)
    x = {box.stage.id: box.x for box in graph.boxes}
    assert x[3] < x[2] < x[1]


def test_only_so_many_are_drawn(monkeypatch):
    monkeypatch.setattr(workflow_graph, "MOST_DRAWN", 2)
    graph = graph_of([stage(1, 2), stage(2, 3), stage(3)], is_tall=False)
    assert [box.stage.id for box in graph.boxes] == [1, 2]
    assert len(graph.edges) == 1
    assert graph.more == "1 more stage is not drawn."
    assert graph_of([stage(1)], is_tall=False).more == ""


def test_box_says_what_there_is_to_say():
    [box] = graph_of([stage(1, live=3, dead=1, most_live=3, opens_when="died")], is_tall=False).boxes
    assert (box.kind, box.done, box.dead, box.condition) == ("dead", "6 of 10", "1 dead", "if one died")
    [box] = graph_of([stage(1, live=3, most_live=3, name="x" * 40)], is_tall=True).boxes
    assert (box.kind, box.done, box.dead, box.condition) == ("open", "7/10", "", "")
    assert box.name == "x" * 13 + "…"
    [box] = graph_of([stage(1, status="skipped", dead=2)], is_tall=False).boxes
    assert (box.kind, box.done) == ("skipped", "skipped")
    [box] = graph_of([stage(1, status="ended", dead=2, killed_by="ann")], is_tall=False).boxes
    assert box.kind == "dead"
    [box] = graph_of([stage(1, status="skipped", killed_by="ann")], is_tall=False).boxes
    assert box.kind == "skipped"


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"live": 10, "most_live": 10}, (0, 0)),
        ({"live": 5, "most_live": 5}, (50, 0)),
        ({"live": 2, "most_live": 2, "dead": 3}, (50, 30)),
        ({"dead": 1, "members": 10_000}, (97, 3)),
        ({"members": 0}, (0, 0)),
        ({"members": 0, "status": "ended"}, (100, 0)),
    ],
)
def test_bar_has_green_for_what_is_done_and_red_for_what_is_dead(values, parts):
    bar = bar_of(stage(1, **values), 100)
    assert (bar.done, bar.dead) == parts


def test_sizes_hold_their_words():
    for size in (DOWN, TO_THE_SIDE):
        assert 0 < size.bar_y < size.high
        assert size.end < size.wide
