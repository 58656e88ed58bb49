"""A server on the loopback that speaks Chat Completions, with whatever stands in for a model behind it."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from haystack.dataclasses import ChatMessage, ToolCall

#: Takes the conversation and returns the assistant's message.
Mind = Callable[[list[ChatMessage]], ChatMessage]


@dataclass
class ModelServer:
    """
    A running server.

    :param requests: The bodies it got.
    :param keys: The `Authorization` headers it got.
    """

    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)


@contextmanager
def serving(mind: Mind, *, status: int = 200) -> Iterator[ModelServer]:
    """
    Serve on a port of the loopback.

    :param mind: Answers.
    :param status: What each response says.
    """
    record, lock = ModelServer(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                record.requests.append(body)
                record.keys.add(self.headers["Authorization"])
            answer = _completion(mind(_messages(body["messages"])), body["model"]) if status == 200 else {"error": {}}
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_arguments: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    record.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield record
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _messages(sent: list[dict[str, Any]]) -> list[ChatMessage]:
    calls: dict[str, ToolCall] = {}
    messages = []
    for each in sent:
        if each["role"] == "system":
            messages.append(ChatMessage.from_system(each["content"]))
        elif each["role"] == "user":
            messages.append(ChatMessage.from_user(each["content"]))
        elif each["role"] == "tool":
            messages.append(ChatMessage.from_tool(each["content"], origin=calls[each["tool_call_id"]]))
        else:
            made = [
                ToolCall(call["function"]["name"], json.loads(call["function"]["arguments"]), id=call["id"])
                for call in each.get("tool_calls") or ()
            ]
            calls |= {str(call.id): call for call in made}
            messages.append(ChatMessage.from_assistant(each.get("content"), tool_calls=made))
    return messages


def _completion(answer: ChatMessage, model: str) -> dict[str, Any]:
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.tool_name, "arguments": json.dumps(call.arguments)},
        }
        for call in answer.tool_calls
    ]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls" if calls else "stop",
                "message": {"role": "assistant", "content": answer.text, **({"tool_calls": calls} if calls else {})},
            }
        ],
        "usage": {**answer.meta["usage"], "total_tokens": sum(answer.meta["usage"].values())},
    }
