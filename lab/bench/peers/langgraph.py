"""Saves with LangGraph's SqliteSaver: the transcript is one channel, and each step puts the whole channel."""

import json
import os
import sqlite3
import sys
import time

try:
    from langgraph.checkpoint.base import empty_checkpoint
    from langgraph.checkpoint.sqlite import SqliteSaver
except ImportError as error:
    print(f"not installed ({error})", flush=True)
    sys.exit()

path = os.path.join(sys.argv[1], "saver.db")
saver = SqliteSaver(sqlite3.connect(path, check_same_thread=False))
saver.setup()
print("ready", flush=True)

messages = []
for _ in range(int(sys.stdin.readline())):
    messages += json.loads(sys.stdin.readline())["events"]
print("begun", flush=True)

config = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
for step, line in enumerate(sys.stdin, 1):
    delta = json.loads(line)
    messages += delta["events"]
    begun = time.perf_counter_ns()
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"messages": messages, "head": delta["head"]}
    checkpoint["channel_versions"] = {"messages": step, "head": step}
    metadata = {"source": "loop", "step": step, "parents": {}}
    config = saver.put(config, checkpoint, metadata, checkpoint["channel_versions"])
    saver.put_writes(config, [("messages", delta["events"])], f"task-{step}")
    print(time.perf_counter_ns() - begun, flush=True)
