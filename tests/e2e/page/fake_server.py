"""A stand-in for troupe that plays scripts: the page's own test double.

Serves gateway/web and the vendored libraries with the headers of the real server, and answers
response.create on the WebSocket with a scripted answer chosen by a word in the last user message:

    queue   waits in the queue, then reads a long prompt     limit    ends at the token limit
    slow    many words, slowly                                fail     fails after a few words
    refuse  refused before response.created                  drop     the connection breaks
    hostile an answer that tries to run scripts               reject   the server cancels it
    full    old messages did not fit the context
    forget  as drop, and the server knows nothing afterwards

Anything else gets a short showcase of markdown. After `drop` new connections are refused for
--down seconds, and with --load seconds at the start, for which the server says that it is loading.
An answer that a closed socket cut off goes on for who resumes it. With --key a client must offer
that key as a subprotocol.
"""

import argparse
import asyncio
import itertools
import json
import mimetypes
import pathlib
import time

from aiohttp import WSMsgType, web

ROOT = pathlib.Path(__file__).resolve().parents[3]
WEB = ROOT / "gateway" / "web"
KEY_PREFIX = "openai-insecure-api-key."
MODEL = "SmolLM2-135M-Instruct.Q4_1"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

SHOWCASE = """A hash map stores **key and value pairs** and finds each one in constant time on
average. It turns the key into a number, the *hash*, and uses it to pick a bucket.

## How it works

1. Compute `h = hash(key)`.
2. Take the bucket number $i = h \\bmod n$.
3. Compare the keys in that bucket, since two may share it.

```python
class HashMap:
    \"\"\"Open hashing with a list per bucket.\"\"\"

    def __init__(self, buckets=64):
        self.buckets = [[] for _ in range(buckets)]

    def put(self, key, value):
        bucket = self.buckets[hash(key) % len(self.buckets)]
        for index, (known, _) in enumerate(bucket):
            if known == key:
                bucket[index] = (key, value)  # replace
                return
        bucket.append((key, value))
```

The load factor $\\alpha$ decides how long a lookup takes:

$$
E[\\text{probes}] = 1 + \\frac{\\alpha}{2}, \\qquad \\alpha = \\frac{\\text{entries}}{n}
$$

| Operation | Average | Worst |
| --- | ---: | ---: |
| find | 1 | n |
| insert | 1 | n |

> Keep the load factor below 0.75 and the worst case stays rare.

See the [documentation](https://docs.python.org/3/library/stdtypes.html#mapping-types-dict).
"""

HOSTILE = """Before <img src=x onerror="window.pwned = 1"> after.

<script>window.pwned = 2</script>

<style>body { display: none }</style>

<iframe src="https://example.com/"></iframe>

<svg onload="window.pwned = 3"><a xlink:href="javascript:window.pwned=4">x</a></svg>

[click](javascript:window.pwned=5) [data](data:text/html,<script>1</script>)
![remote](https://example.com/a.png)

[ok](https://example.com/ "title\\" onmouseover=\\"window.pwned=6")

```html
<img src=x onerror="window.pwned = 7">
```

$\\href{javascript:window.pwned=8}{x}$ $\\includegraphics{https://example.com/b.png}$

The end.
"""


def vendor_files():
    table = {}
    for line in (WEB / "vendor.txt").read_text().splitlines():
        source, name = line.split()
        table[name] = pathlib.Path(source)
    return table


class Answer:
    """One response: sends its events with ids, sequence numbers and the lane's stream_id."""

    ids = itertools.count(1)

    def __init__(self, socket, create):
        self.socket = socket
        self.create = create
        self.id = f"resp_{next(self.ids):032x}"
        self.item_id = self.id.replace("resp", "msg")
        self.sequence = itertools.count()
        self.text = ""
        self.tokens = 0
        self.cancelled = asyncio.Event()

    def response(self, status, **more):
        prompt_tokens = len(json.dumps(self.create["input"])) // 4
        usage = {
            "input_tokens": prompt_tokens,
            "input_tokens_details": {"cached_tokens": prompt_tokens // 2, "cache_write_tokens": 0},
            "output_tokens": self.tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt_tokens + self.tokens,
        }
        return {"id": self.id, "object": "response", "status": status, "model": MODEL,
                "incomplete_details": None, "error": None, "usage": usage, **more}

    async def send(self, kind, **fields):
        event = {"type": kind, "sequence_number": next(self.sequence), **fields}
        if "stream_id" in self.create:
            event["stream_id"] = self.create["stream_id"]
        await self.socket.send_str(json.dumps(event))

    def place(self):
        return {"item_id": self.item_id, "output_index": 0, "content_index": 0}

    def item(self, status):
        part = {"type": "output_text", "text": self.text, "annotations": []}
        return {"id": self.item_id, "type": "message", "status": status, "role": "assistant",
                "content": [part]}

    async def begin(self):
        await self.send("response.created", response=self.response("in_progress"))

    async def progress(self, **troupe):
        fields = {"troupe": troupe} if troupe else {}
        await self.send("response.in_progress", response=self.response("in_progress"), **fields)

    async def open_item(self):
        await self.send("response.output_item.added", output_index=0,
                        item={**self.item("in_progress"), "content": []})
        await self.send("response.content_part.added", **self.place(),
                        part={"type": "output_text", "text": "", "annotations": []})

    async def write(self, text, gap_s):
        """Sends text in pieces of about a token; returns False if it was cancelled meanwhile."""
        for start in range(0, len(text), 5):
            if self.cancelled.is_set():
                return False
            delta = text[start:start + 5]
            self.text += delta
            self.tokens += 1
            await self.send("response.output_text.delta", **self.place(), delta=delta,
                            logprobs=self.scores(delta))
            await asyncio.sleep(gap_s)
        return True

    def scores(self, token):
        """Every third token is a rare one that is not among the likeliest."""
        if not self.create.get("top_logprobs"):
            return []
        top = [("the ", -0.5), ("a ", -1.5), ("\n", -3.0)]
        chosen = -5.0 if self.tokens % 3 == 0 else -0.25
        if chosen > -1:
            top = [(token, chosen)] + top[1:]

        def entry(text, logprob):
            return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

        return [{**entry(token, chosen), "top_logprobs": [entry(*other) for other in top]}]

    async def end(self, kind, status, troupe=None, **more):
        item_status = "completed" if status == "completed" else "incomplete"
        await self.send("response.output_text.done", **self.place(), text=self.text, logprobs=[])
        await self.send("response.content_part.done", **self.place(),
                        part=self.item(item_status)["content"][0])
        await self.send("response.output_item.done", output_index=0, item=self.item(item_status))
        troupe = {"finish_reason": "stop", "tokens_per_second": None, **(troupe or {})}
        response = self.response(status, output=[self.item(item_status)], troupe=troupe, **more)
        await self.send(kind, response=response)

    async def finish(self):
        await self.end("response.completed", "completed")

    async def error(self, status, code, message):
        error = {"type": "invalid_request_error", "code": code, "message": message, "param": None}
        await self.send("error", status=status, code=code, message=message, param=None, error=error)


async def play_default(answer):
    await answer.begin()
    await answer.progress()
    await answer.open_item()
    if await answer.write(SHOWCASE, 0.004):
        await answer.finish()


async def play_hostile(answer):
    await answer.begin()
    await answer.open_item()
    if await answer.write(HOSTILE, 0.002):
        await answer.finish()


async def play_slow(answer):
    await answer.begin()
    await answer.progress()
    await answer.open_item()
    text = " ".join(f"Word {number} of a slow answer." for number in range(1, 1000))
    if await answer.write(text, 0.03):
        await answer.finish()


async def play_queue(answer):
    await answer.begin()
    for position in (3, 2, 1):
        await answer.send("response.queued", response=answer.response("queued"),
                          troupe={"queue_position": position})
        await asyncio.sleep(0.6)
    for done in range(0, 4096, 512):
        await answer.progress(prompt_done=done, prompt_total=4096, cached=0)
        await asyncio.sleep(0.2)
    await answer.open_item()
    if await answer.write("It was your turn at last.", 0.01):
        await answer.finish()


async def play_limit(answer):
    await answer.begin()
    await answer.open_item()
    await answer.write("This answer was going to be much longer, but", 0.005)
    await answer.end("response.incomplete", "incomplete",
                     incomplete_details={"reason": "max_output_tokens"})


async def play_reject(answer):
    await answer.begin()
    await answer.open_item()
    await answer.write("The server is about to", 0.005)
    answer.tokens += 1
    await answer.send("response.incomplete", response=answer.response(
        "cancelled", troupe={"finish_reason": "shutdown", "tokens_per_second": None}))


async def play_full(answer):
    await answer.begin()
    await answer.open_item()
    await answer.write("Of all this I saw only the end.", 0.005)
    await answer.end("response.completed", "completed",
                     troupe={"truncation": {"dropped_messages": 2}})


async def play_fail(answer):
    await answer.begin()
    await answer.open_item()
    await answer.write("All went well until", 0.005)
    await answer.error(500, "server_error", "The engine was restarted.")
    await answer.send("response.failed", response=answer.response("failed"))


async def play_refuse(answer):
    await answer.error(400, "context_length_exceeded",
                       "The prompt has 9001 tokens, the model takes 8192.")


async def play_drop(answer):
    await answer.begin()
    await answer.open_item()
    await answer.write("The line goes dead in", 0.01)
    server = answer.socket.app_state
    server["down_until"] = time.monotonic() + server["down_s"]
    answer.socket.transport_of_request.abort()


async def play_forget(answer):
    answer.socket.app_state["resumable"].clear()
    await play_drop(answer)


async def resume(socket, event):
    """The text so far in one event, then the rest."""
    answer = socket.app_state["resumable"].pop(event["response_id"], None)
    stranger = answer is None
    if stranger:
        answer = Answer(socket, event)
    answer.socket, answer.create["stream_id"] = socket, event["stream_id"]
    if stranger:
        await answer.error(404, "response_not_found", "There is no such response.")
        return
    answer.text += " the middle"
    await answer.send("response.in_progress", response=answer.response(
        "in_progress", output=[answer.item("in_progress")]))
    if await answer.write(" of a word, and is back.", 0.01):
        await answer.finish()


SCRIPTS = {
    "queue": play_queue, "slow": play_slow, "refuse": play_refuse, "hostile": play_hostile,
    "limit": play_limit, "fail": play_fail, "drop": play_drop, "reject": play_reject,
    "full": play_full, "forget": play_forget,
}


def script_for(create):
    text = create["input"][-1]["content"][0]["text"].lower()
    return next((play for word, play in SCRIPTS.items() if word in text), play_default)


async def run_answer(answer, lane):
    async with lane["lock"]:
        lane["answer"] = answer
        answer.socket.app_state["resumable"][answer.id] = answer
        await script_for(answer.create)(answer)
        if answer.cancelled.is_set():
            await answer.end("response.incomplete", "cancelled")
        lane["answer"] = None


async def handle_message(socket, event, lanes, tasks):
    lane = lanes.setdefault(event.get("stream_id"), {"lock": asyncio.Lock(), "answer": None})
    if event["type"] == "response.create":
        tasks.add(asyncio.create_task(run_answer(Answer(socket, event), lane)))
    elif event["type"] == "troupe:response.resume":
        tasks.add(asyncio.create_task(resume(socket, event)))
    elif event["type"] == "response.cancel" and lane["answer"]:
        lane["answer"].cancelled.set()
    elif event["type"] == "troupe:ping":
        await socket.send_str(json.dumps({"type": "troupe:pong", "t": event["t"]}))


async def refuse_key(socket):
    error = {"type": "authentication_error", "code": "invalid_api_key", "message": "Bad key.",
             "param": None}
    await socket.send_str(json.dumps({"type": "error", "status": 401, "error": error}))
    await socket.close(code=4401)


async def responses(request):
    state = request.app["state"]
    if time.monotonic() < max(state["down_until"], state["loaded_at"]):
        return web.Response(status=503)
    socket = web.WebSocketResponse(protocols=("troupe.v1",))
    await socket.prepare(request)
    socket.app_state = state
    socket.transport_of_request = request.transport
    offered = request.headers.get("Sec-WebSocket-Protocol", "")
    if state["key"] and f"{KEY_PREFIX}{state['key']}" not in offered.replace(" ", "").split(","):
        await refuse_key(socket)
        return socket
    await socket.send_str(json.dumps({"type": "troupe:session", "connection_id": "c1",
                                      "limits": {}, "heartbeat_ms": 20000}))
    lanes, tasks = {}, set()
    async for message in socket:
        if message.type == WSMsgType.TEXT:
            await handle_message(socket, json.loads(message.data), lanes, tasks)
    for task in tasks:
        task.cancel()
    return socket


async def forget(request):
    request.app["state"]["forgotten"].append(request.match_info["id"])
    return web.json_response({"deleted": True})


async def models(request):
    key = request.app["state"]["key"]
    if key and request.headers.get("Authorization") != f"Bearer {key}":
        return web.json_response({"error": {"code": "invalid_api_key"}}, status=401)
    model = {"id": MODEL, "object": "model", "max_model_len": 8192}
    return web.json_response({"object": "list", "data": [model]})


async def ready(request):
    state = request.app["state"]
    left_s = state["loaded_at"] - time.monotonic()
    if left_s <= 0:
        return web.json_response({"status": "ready", "model": MODEL})
    loaded = 1 - left_s / state["load_s"]
    return web.json_response({"status": "loading", "reason": "the model is loading",
                              "loaded": loaded}, status=503)


def file_response(path):
    if not path.is_file():
        raise web.HTTPNotFound()
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    text = kind.startswith("text/")
    return web.Response(body=path.read_bytes(), headers=HEADERS, content_type=kind,
                        charset="utf-8" if text else None)


async def index(_request):
    return file_response(WEB / "index.html")


async def asset(request):
    name = request.match_info["name"]
    if name.startswith("vendor/"):
        source = request.app["vendor"].get(name.removeprefix("vendor/"))
        if source is None:
            raise web.HTTPNotFound()
        return file_response(source)
    if "/" in name:
        raise web.HTTPNotFound()
    return file_response(WEB / name)


def make_app(key="", down_s=4.0, load_s=0.0):
    mimetypes.add_type("text/javascript", ".js")
    mimetypes.add_type("font/woff2", ".woff2")
    app = web.Application()
    app["state"] = {"key": key, "down_s": down_s, "down_until": 0.0, "load_s": load_s,
                    "loaded_at": time.monotonic() + load_s, "resumable": {}, "forgotten": []}
    app["vendor"] = vendor_files()
    app.add_routes([
        web.get("/", index), web.get("/assets/{name:.+}", asset),
        web.get("/v1/models", models), web.get("/v1/responses", responses),
        web.get("/ready", ready),
        web.delete("/v1/responses/{id}", forget),
    ])
    return app


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8999)
    parser.add_argument("--key", default="")
    parser.add_argument("--down", type=float, default=4.0)
    parser.add_argument("--load", type=float, default=0.0)
    arguments = parser.parse_args()
    web.run_app(make_app(arguments.key, arguments.down, arguments.load), host="127.0.0.1", port=arguments.port,
                print=None)


if __name__ == "__main__":
    main()
