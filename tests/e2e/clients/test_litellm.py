"""The unchanged `litellm` package as a library."""

import asyncio
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would ask the network for prices

import litellm
import pytest

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture
def asked(server):
    return {"model": "openai/default", "api_base": server.url + "/v1", "api_key": "unused",
            "temperature": 0, "max_tokens": 24, "num_retries": 0}


def test_a_completion_its_stream_and_its_coroutine_agree(asked):
    whole = litellm.completion(messages=QUESTION, **asked)
    text = whole.choices[0].message.content
    assert "Paris" in text and whole.usage.completion_tokens > 3
    chunks = litellm.completion(messages=QUESTION, stream=True, **asked)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text
    later = asyncio.run(litellm.acompletion(messages=QUESTION, **asked))
    assert later.choices[0].message.content == text


def test_texts_and_responses(asked):
    place = {"api_base": asked["api_base"], "api_key": "unused", "temperature": 0}
    completed = litellm.text_completion(model="text-completion-openai/default", max_tokens=8,
                                        prompt="Once upon a time", **place)
    assert completed.choices[0].text
    response = litellm.responses(model="openai/default", input="Say hello.", max_output_tokens=16,
                                 **place)
    assert response.output[0].content[0].text and response.usage.output_tokens == 16


def test_errors_become_the_packages_own(asked):
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(messages=QUESTION, **{**asked, "model": "openai/gpt-9"})
    with pytest.raises(litellm.BadRequestError, match="between 0 and 1"):
        litellm.completion(messages=QUESTION, top_p=7, **asked)
    # Known by the words of its message: the package does not look at `code`.
    with pytest.raises(litellm.ContextWindowExceededError):
        litellm.completion(messages=[{"role": "user", "content": "word " * 9000}], **asked)
