"""The unchanged `openai` package when something goes wrong: its exceptions, retries, cancels."""

import asyncio
import concurrent.futures
import socket
import time

import httpx
import openai
import pytest

WORDS = [{"role": "user", "content": "the cat"}]
KEYS = ("ada sk-ada-0123456789abcdef rpm=60\n"
        "ops sk-ops-0123456789abcdef admin\n")


@pytest.fixture
def keyed(start_server, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(KEYS)
    return start_server("--api-keys", str(keys), model="toy")


def connect(server, key="unused", **options):
    return openai.OpenAI(base_url=server.url + "/v1", api_key=key,
                         **{"max_retries": 0, **options})


def test_every_refusal_is_the_packages_exception(keyed):
    def ask(key, **fields):
        connect(keyed, key).chat.completions.create(
            **{"model": "default", "messages": WORDS, "max_tokens": 2, **fields})

    with pytest.raises(openai.AuthenticationError) as wrong_key:
        ask("sk-eve-0123456789abcdef")
    assert (wrong_key.value.status_code, wrong_key.value.code) == (401, "invalid_api_key")
    with pytest.raises(openai.PermissionDeniedError) as forbidden:
        connect(keyed, "sk-ada-0123456789abcdef").get("/../props", cast_to=object)
    assert (forbidden.value.status_code, forbidden.value.code) == (403, "forbidden")
    with pytest.raises(openai.NotFoundError) as no_model:
        ask("sk-ops-0123456789abcdef", model="gpt-9")
    assert no_model.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        connect(keyed, "sk-ops-0123456789abcdef").responses.retrieve("resp_none")
    with pytest.raises(openai.BadRequestError) as bad:
        ask("sk-ops-0123456789abcdef", temperature=5)
    assert bad.value.param == "temperature" and bad.value.request_id.startswith("req_")
    with pytest.raises(openai.BadRequestError) as no_chain:
        connect(keyed, "sk-ops-0123456789abcdef").responses.create(
            model="default", input="the cat", previous_response_id="resp_none")
    assert no_chain.value.code == "previous_response_not_found"


def test_too_much_is_retried_when_the_server_says_so(keyed):
    asked = {"model": "default", "prompt": "the cat", "max_tokens": 1}
    client = connect(keyed, "sk-ada-0123456789abcdef")
    client.completions.create(n=60, **asked)  # the minute's worth at once
    with pytest.raises(openai.RateLimitError) as refused:
        client.completions.create(n=2, **asked)
    assert refused.value.code == "rate_limit_exceeded"
    assert 1 <= int(refused.value.response.headers["retry-after"]) <= 2
    # The package waits as long as Retry-After says, and then it works.
    assert client.with_options(max_retries=3).completions.create(n=2, **asked).choices


def test_a_client_that_comes_before_the_model_is_loaded_gets_its_answer(start_server):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    early = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="unused", max_retries=20)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        # Refused connections and 503 both are for its retries.
        answer = pool.submit(early.completions.create, model="default", prompt="the", max_tokens=1)
        start_server("--port", str(port), model="toy")
        assert answer.result(timeout=60).choices


def test_the_helpers_that_collect_streams_agree_with_the_whole(server):
    client = connect(server)
    question = "What is the capital of France? Answer in one sentence."
    asked = {"model": "default", "messages": [{"role": "user", "content": question}],
             "temperature": 0, "stop": ["."]}  # a token limit's end would be an error to the package
    with client.chat.completions.stream(**asked) as stream:
        collected = stream.get_final_completion()
    whole = client.chat.completions.create(**asked)
    assert collected.choices[0].message.content == whole.choices[0].message.content
    asked = {"model": "default", "input": question, "temperature": 0,
             "extra_body": {"stop": ["."]}}
    with client.responses.stream(**asked) as stream:
        text = "".join(event.delta for event in stream
                       if event.type == "response.output_text.delta")
        assert stream.get_final_response().output_text == text
    assert text == client.responses.create(**asked).output_text != ""


def test_a_cancelled_coroutine_frees_its_slot(server):
    async def cancel_one(stream):
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="unused") as client:
            async def ask():
                answer = await client.chat.completions.create(
                    model="default", messages=WORDS, max_tokens=4000, stream=stream,
                    extra_body={"ignore_eos": True})
                async for _ in answer:
                    started.set()

            started = asyncio.Event()
            task = asyncio.create_task(ask())
            if stream:
                await started.wait()
            else:
                await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    for stream in (True, False):
        asyncio.run(cancel_one(stream))
        assert server.wait_idle(10)["troupe_requests_running"] == 0


def test_a_background_response_is_cancelled_by_its_id(server):
    client = connect(server)
    response = client.responses.create(model="default", input="Tell me a long story.",
                                       background=True, extra_body={"ignore_eos": True})
    assert response.status in ("queued", "in_progress")
    client.responses.cancel(response.id)
    deadline = time.monotonic() + 10
    while (status := client.responses.retrieve(response.id).status) == "in_progress":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert status == "cancelled"
    assert client.responses.input_items.list(response.id).data[0].content[0].text == \
        "Tell me a long story."
    client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)


def test_the_packages_timeout_ends_the_work_too(server):
    with pytest.raises(openai.APITimeoutError):
        connect(server, timeout=httpx.Timeout(0.3)).chat.completions.create(
            model="default", messages=WORDS, max_tokens=4000, extra_body={"ignore_eos": True})
    assert server.wait_idle(10)["troupe_requests_running"] == 0
