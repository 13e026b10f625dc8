"""Many people at once: 32 sockets, a thousand requests (--requests), random cancels and disconnects."""

import random
import threading

import pytest

from wire import TERMINAL, Client, check_order, create, deltas_of, text_of

PEOPLE = 32
TOPICS = ["the sea", "a cat", "winter", "trains", "bread", "the moon", "rain", "music"]


def request_of(number):
    """The request with this number: always the same one."""
    rng = random.Random(number)
    text = f"Write about {rng.choice(TOPICS)} for person {rng.randrange(40)}." + \
        " Mind the details." * rng.randrange(30)
    sampled = rng.random() < 0.5
    return create(text, max_output_tokens=rng.randrange(1, 40),
                  temperature=0.8 if sampled else 0, seed=number, top_p=0.95)


def run_clients(server, count, per_client, different, trouble):
    """Each of `count` people asks so often, all of them for one of so many different requests."""
    outcomes, faults = {}, []

    def work(index):
        rng = random.Random(1000 + index)
        try:
            client = Client(server)
            for turn in range(per_client):
                number = index * per_client + turn
                message = request_of(number % different)
                kind = rng.random() if trouble else 1
                client.send(message)
                if kind < 0.08:  # vanish
                    client.socket.socket.close()
                    client = Client(server)
                    continue
                if kind < 0.2:
                    client.send({"type": "response.cancel"})
                events = client.until(*TERMINAL, timeout=600)
                check_order(events)
                if events[-1]["response"]["status"] in ("completed", "incomplete"):
                    outcomes[number] = text_of(events[-1]["response"])
            client.socket.close()
        except Exception as error:  # reported by the main thread
            faults.append(f"client {index}: {type(error).__name__}: {error}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults[:5]
    return outcomes


@pytest.mark.long
def test_a_thousand_requests_from_32_people(start_server, pytestconfig):
    each = pytestconfig.getoption("requests") // PEOPLE
    kinds = min(120, each * PEOPLE // 3)
    server = start_server()
    alone = run_clients(server, 1, kinds, kinds, trouble=False)
    server.wait_idle(30)
    warm_bytes = server.rss_bytes()
    together = run_clients(server, PEOPLE, each, kinds, trouble=True)
    different = [n for n, text in together.items() if text != alone[n % kinds]]
    assert not different, f"{len(different)} of {len(together)} answers differ, e.g. {different[:5]}"
    assert len(together) > each * PEOPLE * 0.68
    metrics = server.wait_idle(30)
    assert metrics["troupe_kv_pages_leased"] == 0
    assert metrics["troupe_requests_running"] == metrics["troupe_requests_waiting"] == 0
    before = server.rss_bytes()
    run_clients(server, PEOPLE, each // 4, kinds, trouble=True)
    server.wait_idle(30)
    after = server.rss_bytes()
    assert after - before < 64 << 20, f"memory grew from {before} to {after} (warm {warm_bytes})"
