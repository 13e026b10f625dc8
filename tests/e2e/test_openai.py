"""The unchanged `openai` package: chat and responses over HTTP, SSE and WebSocket, cancel, errors."""

import openai
import pytest

QUESTION = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]


@pytest.fixture
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0)


@pytest.mark.default_model
def test_chat_answers_and_counts(client):
    answer = client.chat.completions.create(model="default", messages=QUESTION, max_tokens=24,
                                            temperature=0)
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_chat_stream_is_the_same_text(client):
    asked = dict(model="default", messages=QUESTION, max_tokens=24, temperature=0)
    whole = client.chat.completions.create(**asked).choices[0]
    chunks = list(client.chat.completions.create(stream=True,
                                                 stream_options={"include_usage": True}, **asked))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == whole.finish_reason
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens > 0


def test_seeded_sampling_repeats(client):
    asked = dict(model="default", messages=QUESTION, max_tokens=16, temperature=0.9, seed=7)
    first = client.chat.completions.create(**asked)
    assert client.chat.completions.create(**asked).choices[0].message.content == \
        first.choices[0].message.content
    assert first.system_fingerprint


def test_several_choices_differ_and_are_reproducible(client):
    asked = dict(model="default", messages=QUESTION, max_tokens=16, temperature=1.0, seed=3, n=3)
    first = [c.message.content for c in client.chat.completions.create(**asked).choices]
    assert len(set(first)) == 3
    assert [c.message.content for c in client.chat.completions.create(**asked).choices] == first


def test_logprobs_have_the_openai_form(client):
    answer = client.chat.completions.create(model="default", messages=QUESTION, max_tokens=4,
                                            temperature=0, logprobs=True, top_logprobs=3)
    tokens = answer.choices[0].logprobs.content
    assert len(tokens) == answer.usage.completion_tokens or len(tokens) == 4
    for token in tokens:
        assert token.logprob <= 0 and len(token.top_logprobs) == 3
        assert bytes(token.bytes).decode(errors="replace")


def test_responses_over_http_and_sse(client):
    asked = dict(model="default", input="Say hello.", max_output_tokens=12, temperature=0)
    whole = client.responses.create(**asked)
    assert whole.status in ("completed", "incomplete") and whole.output_text
    events = list(client.responses.create(stream=True, **asked))
    assert events[0].type == "response.created"
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == \
        whole.output_text
    assert [e.sequence_number for e in events] == list(range(len(events)))


def test_responses_over_websocket(client):
    with client.responses.connect() as connection:
        connection.response.create(model="default", input="Say hello.", max_output_tokens=12,
                                   temperature=0)
        text = ""
        for event in connection:
            if event.type == "response.output_text.delta":
                text += event.delta
            if event.type in ("response.completed", "response.incomplete"):
                break
        assert text and event.response.output_text == text


def test_websocket_chain_remembers(client):
    with client.responses.connect() as connection:
        def ask(**fields):
            connection.response.create(model="default", temperature=0, max_output_tokens=24,
                                       **fields)
            for event in connection:
                if event.type in ("response.completed", "response.incomplete"):
                    return event.response

        first = ask(input="My name is Ada. Remember it.")
        second = ask(input="What is my name?", previous_response_id=first.id)
        assert second.previous_response_id == first.id
        assert second.usage.input_tokens > first.usage.total_tokens
        assert second.usage.input_tokens_details.cached_tokens > 0


def test_closing_a_stream_cancels(client, server):
    stream = client.chat.completions.create(model="default", messages=QUESTION, max_tokens=2000,
                                            temperature=1.0, stream=True,
                                            extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    assert server.wait_idle(5)["troupe_requests_running"] == 0


def test_async_client(server):
    import asyncio

    async def ask():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="unused") as client:
            return await asyncio.gather(*(
                client.chat.completions.create(model="default", messages=QUESTION, max_tokens=8,
                                               temperature=0) for _ in range(4)))

    answers = asyncio.run(ask())
    assert len({a.choices[0].message.content for a in answers}) == 1


@pytest.mark.default_model
def test_errors_become_the_packages_exceptions(client):
    with pytest.raises(openai.NotFoundError) as not_found:
        client.chat.completions.create(model="gpt-9", messages=QUESTION)
    assert not_found.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="default", messages=QUESTION, temperature=5)
    assert "temperature" in str(bad.value) and bad.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model="default", max_tokens=5,
                                       messages=[{"role": "user", "content": "word " * 9000}])
    assert long.value.code == "context_length_exceeded" and "8192" in str(long.value)


def test_models_are_listed(client):
    models = client.models.list().data
    assert len(models) == 1 and client.models.retrieve(models[0].id).id == models[0].id


@pytest.mark.default_model
def test_old_turns_are_left_out_only_when_asked(server, client):
    filler = "word " * 3000
    messages = [{"role": "system", "content": "Answer briefly."},
                {"role": "user", "content": filler}, {"role": "assistant", "content": "ok"},
                {"role": "user", "content": filler}, {"role": "assistant", "content": "ok"},
                {"role": "user", "content": filler}, {"role": "assistant", "content": "ok"},
                {"role": "user", "content": "Say hello."}]
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="default", messages=messages, max_tokens=4)
    assert refused.value.code == "context_length_exceeded"
    answer = client.chat.completions.create(model="default", messages=messages, max_tokens=4,
                                            extra_body={"truncation": "auto"})
    assert answer.choices[0].troupe["truncation"] == {"dropped_messages": 2}
    assert 6000 < answer.usage.prompt_tokens < 8192


def test_a_deadline_ends_an_answer(client):
    answer = client.chat.completions.create(
        model="default", messages=[{"role": "user", "content": "Count to a million."}],
        extra_body={"deadline_ms": 1, "ignore_eos": True})
    assert answer.choices[0].troupe["finish_reason"] == "deadline"
    assert answer.usage.completion_tokens < 100
