"""Answers that outlive their connection."""

import httpx
import openai

from wire import TERMINAL, Client, create, deltas_of, text_of


def begin(client, **fields):
    """Starts a long answer; gives its events up to the first delta."""
    client.send(create("Count to a hundred.", temperature=0, max_output_tokens=120,
                       ignore_eos=True, store=True, **fields))
    return client.until("response.output_text.delta")


def resume(client, response_id, **fields):
    client.send({"type": "troupe:response.resume", "response_id": response_id, **fields})
    return client.until(*TERMINAL, "error")


def test_a_lost_connection_loses_nothing(server):
    with Client(server) as client:
        seen = begin(client)
        client.socket.socket.close()  # no close frame: the network is gone
    response_id = seen[0]["response"]["id"]
    with Client(server) as client:
        rest = resume(client, response_id, starting_after=seen[-1]["sequence_number"])
    events = seen + rest
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    assert deltas_of(events) == text_of(events[-1]["response"])
    with Client(server) as client:  # all of it, once more
        assert deltas_of(resume(client, response_id)) == deltas_of(events)


def test_several_viewers_read_the_same(server):
    with Client(server) as first, Client(server) as second:
        seen = begin(first)
        response_id = seen[0]["response"]["id"]
        other = resume(second, response_id, starting_after=0)
        mine = seen + first.until(*TERMINAL)
    assert [e for e in other] == mine[1:]


def test_a_snapshot_and_what_follows(server):
    with Client(server) as first, Client(server) as second:
        seen = begin(first)
        events = resume(second, seen[0]["response"]["id"], mode="snapshot")
    so_far = text_of(events[0]["response"])
    assert events[0]["type"] == "response.in_progress" and so_far
    assert so_far + deltas_of(events) == text_of(events[-1]["response"])


def test_the_official_client_reads_a_background_answer(server):
    api = openai.OpenAI(base_url=server.url + "/v1", api_key="unused")
    begun = api.responses.create(model="default", input="Count to twenty.", background=True,
                                 temperature=0, max_output_tokens=40)
    assert begun.status in ("queued", "in_progress")
    events = list(api.responses.retrieve(begun.id, stream=True))
    assert events[-1].type in TERMINAL
    later = list(api.responses.retrieve(begun.id, stream=True, starting_after=3))
    assert [e.sequence_number for e in later] == [e.sequence_number for e in events][4:]
    assert api.responses.retrieve(begun.id).status in ("completed", "incomplete")


def test_what_nobody_wished_kept_ends_with_its_connection(server):
    with Client(server) as client:
        client.send(create("Count to a hundred.", max_output_tokens=2000, ignore_eos=True))
        response_id = client.until("response.output_text.delta")[0]["response"]["id"]
    m = server.wait_idle(5)
    assert m["troupe_requests_running"] == 0 and m["troupe_kv_pages_leased"] == 0
    assert httpx.get(f"{server.url}/v1/responses/{response_id}").status_code == 404
