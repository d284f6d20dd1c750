"""Runs whole turns and interrupted turns on request, with the Python SDK of Claude Code and a scripted agent."""

import asyncio
import sys
import time

try:
    from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage
    from claude_agent_sdk.types import StreamEvent
except ImportError as error:
    print(f"not installed ({error})", flush=True)
    sys.exit()


def is_answer(message):
    if not isinstance(message, StreamEvent):
        return False
    return message.event.get("delta", {}).get("type") == "text_delta"


def is_end(message):
    return isinstance(message, ResultMessage)


async def read_to(messages, enough):
    while not enough(await anext(messages)):
        pass


async def main():
    options = ClaudeAgentOptions(cli_path=sys.argv[1], include_partial_messages=True)
    async with ClaudeSDKClient(options) as client:
        messages = client.receive_messages()
        print("ready", flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            if line.strip() == "turn":
                await client.query("go")
                await read_to(messages, is_end)
                begun = time.perf_counter_ns()
                await client.query("go")
                await read_to(messages, is_answer)
                took = time.perf_counter_ns() - begun
                await read_to(messages, is_end)
            else:
                await client.query("hold")
                await read_to(messages, is_answer)
                begun = time.perf_counter_ns()
                asking = asyncio.ensure_future(client.interrupt())
                await read_to(messages, is_end)
                took = time.perf_counter_ns() - begun
                await asking
            print(took, flush=True)


asyncio.run(main())
