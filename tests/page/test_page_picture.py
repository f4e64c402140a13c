"""The picture of the node on the page: squares, cells, signs, links; small enough at the largest node."""

import re

from drawn_node import HOLDER, LONG_NAME, largest, pairs_below_switches

from devherd.exporter.status_page.page import render
from devherd.exporter.status_page.picture import MOST_DRAWN, picture
from devherd.exporter.status_page.view import View
from devherd.instance.node_map import node_map
from devherd.instance.read import InstanceState
from devherd.proto.spool_pb2 import Device, Offer

NAME = "nvidia.com/gpu"
MOST_BYTES = 60_000


def drawn(offers, paths, held=None, shown=()):
    return picture(node_map(InstanceState(offers), held or {}, paths), set(shown))


def card(html, name):
    """The link of a card."""
    return next(each for each in re.findall(r"<a class.*?</a>", html) if f"<b>{name}</b>" in each)


def test_the_picture_of_the_largest_node_is_small_whatever_pods_hold():
    """24 resource types, 128 cards, 1 024 functions, 4 096 ids, all of them held by pods with long names."""
    offers, paths, held = largest(hold=True)
    rows = {(LONG_NAME, device.id) for device in offers[0].devices[:100]}
    html = drawn(offers, paths, held, rows)
    assert html.count("<a class") == 128 + 22
    assert len(html.encode()) <= MOST_BYTES
    assert len(drawn(offers, paths).encode()) <= MOST_BYTES


def test_a_square_is_filled_where_a_pod_holds_the_card_and_names_the_pod():
    """In its tooltip with the namespace, and in the text."""
    offer, paths = pairs_below_switches()
    html = drawn([offer], paths, {(NAME, "GPU-1"): [HOLDER]}, {(NAME, f"GPU-{number}") for number in range(4)})
    assert card(html, "GPU 1") == (
        f'<a class="good" href="#{NAME}/GPU-1"'
        ' title="GPU 1, NVIDIA H100 80GB HBM3, 0000:41:00.0: Healthy, research/train-0">'
        '<svg aria-hidden="true"><rect class="good held"></rect></svg><b>GPU 1</b><i>train-0</i></a>'
    )
    assert '<rect class="good"></rect></svg><b>GPU 0</b><i>free</i>' in card(html, "GPU 0")


def test_health_is_a_sign_and_a_word_besides_a_colour():
    """A cross, a mark, a bar, an empty place."""
    offer, paths = pairs_below_switches()
    bad, warned, cordoned, lost = offer.devices
    bad.reasons.append("xid")
    warned.warnings.append("link-degraded")
    cordoned.reasons.append("cordoned")
    lost.reasons.append("gone")
    html = drawn([offer], paths)
    words = {name: re.search(r"<i>(.*)</i>", card(html, name))[1] for name in ("GPU 0", "GPU 1", "GPU 2", "GPU 3")}
    assert words == {"GPU 0": "xid", "GPU 1": "link-degraded", "GPU 2": "cordoned", "GPU 3": "lost"}
    signs = [re.search(r'<path d="(.*?)" class="sign">', card(html, name)) for name in words]
    assert len({sign[1] for sign in signs[:3]}) == 3
    assert signs[3] is None
    key = html.partition('class="key"')[2]
    assert re.findall(r"</svg>([A-Za-z ]+)<", key) == [
        "free",
        "held by a pod",
        "warning",
        "cordoned",
        "Unhealthy",
        "lost",
    ]


def test_the_parts_of_a_card_are_cells_and_many_a_number():
    """Of 4 shares one is held; of 1 024 a bar shows how many."""
    offer, paths = pairs_below_switches()
    offer.devices[0].replicas, offer.devices[1].replicas = 4, 1024
    held = {(NAME, "GPU-0::0"): [HOLDER], **{(NAME, f"GPU-1::{number}"): [HOLDER] for number in range(512)}}
    html = drawn([offer], paths, held)
    of_four = card(html, "GPU 0")
    assert re.findall(r'<path d="([^"]*)" class="([^"]*)">', of_four) == [
        ("M10 10h18v18h-18z", "good held"),
        ("M32 10h18v18h-18zM10 32h18v18h-18zM32 32h18v18h-18z", "good"),
    ]
    of_many = card(html, "GPU 1")
    assert ">1,024</text>" in of_many
    assert '<path d="M10 40h20v7h-20z" class="good held">' in of_many
    assert "<i>512/1,024 train-0</i>" in of_many


def test_a_square_leads_to_its_device_also_where_the_page_has_no_row_for_it():
    """Without scripts, too: by the filter."""
    offer, paths = pairs_below_switches()
    html = drawn([offer], paths, shown={(NAME, "GPU-0")})
    assert f'href="#{NAME}/GPU-0"' in card(html, "GPU 0")
    assert 'href="?filter=GPU-1"' in card(html, "GPU 1")


def test_the_links_between_cards_are_drawn_and_told():
    """All with all: one line; else an arc for each pair."""
    offer, paths = pairs_below_switches()
    for device in offer.devices:
        device.attributes["nvswitch_ports"] = "0000:f0:00.0/1"
    html = drawn([offer], paths)
    assert 'role="img" aria-label="NVLink by NVSwitch, each to each: GPU 0, GPU 1, GPU 2, GPU 3"' in html
    assert html.count('class="link') == 1
    for device in offer.devices:
        del device.attributes["nvswitch_ports"]
    offer.devices[0].attributes["nvlink_gpus"] = "0000:41:00.0,0000:42:00.0,0000:42:00.0"
    html = drawn([offer], paths)
    assert 'aria-label="NVLink: GPU 0-GPU 1, GPU 0-GPU 2 x 2"' in html
    assert [each.count("a") for each in re.findall(r'<path d="([^"]*)" class="link', html)] == [1, 1]


def test_the_picture_is_below_the_line_of_state_and_problems_come_first_where_it_fills_the_screen():
    """With 128 cards they would be far below."""
    offer, paths = pairs_below_switches()
    places = [">Resources<", 'id="map"', 'id="troubles"', 'id="verdict"']

    def order(offers, where):
        body = render(InstanceState(offers), {}, (), View(), where).body
        return sorted(places, key=body.index)

    assert order([offer], paths) == ['id="verdict"', 'id="map"', 'id="troubles"', ">Resources<"]
    offers, many, _ = largest()
    assert order(offers, many) == ['id="verdict"', 'id="troubles"', 'id="map"', ">Resources<"]


def test_of_ten_thousand_cards_what_is_not_well_is_drawn():
    """The rest is counted."""
    offers = [Offer(name=f"example.com/r{number:05}", devices=[Device(id="0")]) for number in range(10_000)]
    offers[9_000].devices[0].reasons.append("xid")
    html = drawn(offers, {})
    assert html.count("<a class") == MOST_DRAWN
    assert "<b>r09000</b>" in html
    assert f"and {10_000 - MOST_DRAWN:,} more" in html


def test_a_node_without_devices_has_no_picture():
    """An empty frame would say nothing."""
    assert drawn([], {}) == ""


def test_the_list_shows_the_model_and_calls_only_what_a_pod_could_get_free():
    """Lost and cordoned devices were."""
    offer, _ = pairs_below_switches()
    offer.devices[0].reasons.append("gone")
    offer.devices[1].reasons.append("cordoned")
    body = render(InstanceState([offer]), {}, (), View()).body
    rows = dict(re.findall(rf'<li id="{NAME}/(GPU-\d)".*?<span class="holder">(.*?)</span>', body))
    assert rows == {"GPU-0": "no pod", "GPU-1": "no pod", "GPU-2": "free", "GPU-3": "free"}
    assert body.count('<span class="model">NVIDIA H100 80GB HBM3</span>') == 4
