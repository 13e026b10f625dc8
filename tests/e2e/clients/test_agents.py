"""The unchanged `openai-agents` package: its three kinds of model, streams, sessions, refusals."""

import asyncio

import openai
import pydantic
import pytest
from agents import (Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel,
                    OpenAIResponsesWSModel, Runner, SQLiteSession, set_tracing_disabled)

set_tracing_disabled(True)
QUESTION = "What is the capital of France?"
MODELS = [OpenAIChatCompletionsModel, OpenAIResponsesModel, OpenAIResponsesWSModel]
over_every_door = pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)


def with_agent(server, kind, work, **fields):
    """The result of `work(agent)`, a coroutine; its client lives and ends in the same loop."""
    async def run():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="unused",
                                      max_retries=0) as client:
            return await work(Agent(name="guide", instructions="Answer briefly.",
                                    model=kind(model="default", openai_client=client),
                                    model_settings=ModelSettings(temperature=0, max_tokens=100),
                                    **fields))
    return asyncio.run(run())


@over_every_door
def test_an_agent_answers_and_counts(server, kind):
    result = with_agent(server, kind, lambda agent: Runner.run(agent, QUESTION))
    assert "Paris" in result.final_output
    usage = result.context_wrapper.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens > 10


@over_every_door
def test_an_agents_stream_is_its_answer(server, kind):
    async def stream(agent):
        run = Runner.run_streamed(agent, QUESTION)
        deltas = [event.data.delta async for event in run.stream_events()
                  if event.type == "raw_response_event" and
                  event.data.type == "response.output_text.delta"]
        return deltas, run.final_output

    deltas, final = with_agent(server, kind, stream)
    assert len(deltas) > 2 and "".join(deltas) == final


@over_every_door
def test_an_agents_session_remembers(server, kind):
    async def two_turns(agent):
        session = SQLiteSession("turns")
        first = await Runner.run(agent, QUESTION, session=session)
        return first, await Runner.run(agent, "And of Spain?", session=session)

    first, second = with_agent(server, kind, two_turns)
    assert "Spain" in second.final_output
    assert second.context_wrapper.usage.input_tokens > first.context_wrapper.usage.total_tokens


@pytest.mark.parametrize("kind", MODELS[1:], ids=lambda kind: kind.__name__)
def test_an_agent_continues_a_kept_response(server, kind):
    async def two_turns(agent):
        first = await Runner.run(agent, QUESTION)
        return await Runner.run(agent, "And of Spain?", previous_response_id=first.last_response_id)

    assert "Spain" in with_agent(server, kind, two_turns).final_output


@pytest.mark.parametrize("kind", MODELS[:2], ids=lambda kind: kind.__name__)
def test_an_agent_that_wants_json_is_told_that_there_is_none(server, kind):
    class City(pydantic.BaseModel):
        name: str

    with pytest.raises(openai.BadRequestError) as refused:
        with_agent(server, kind, lambda agent: Runner.run(agent, QUESTION), output_type=City)
    assert "plain text only" in str(refused.value)
